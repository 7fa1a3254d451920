package ops_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestAnAuditThatHangsRefusesTheChange, rolls it back and keeps nothing else from the database.
// Promise: audit
func TestAnAuditThatHangsRefusesTheChange(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		release := make(chan struct{})
		defer close(release)
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) {
			c.Audit = func(context.Context, ops.Change) error { <-release; return nil }
		})
		err := operator.As(d, someone(ops.Administrator)).Consumers().Pause(t.Context(), "c", "x")
		if !errors.Is(err, isolate.ErrTimeout) {
			t.Errorf("got error %v, want it to end", err)
		}
		if n := a.Count("SELECT count(*) FROM paused_consumers") + a.Count("SELECT count(*) FROM message_operations"); n != 0 {
			t.Errorf("got %d rows of the change, want it rolled back", n)
		}
		a.ProduceMany(1)
	})
}

// TestAnAuditThatPanicsRefusesTheChange, and so does an Allow that panics.
func TestAnAuditThatPanicsRefusesTheChange(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		var asked atomic.Int64
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) {
			c.Audit = func(context.Context, ops.Change) error { asked.Add(1); panic("no audit") }
		})
		err := operator.As(d, someone(ops.Administrator)).Consumers().Pause(t.Context(), "c", "x")
		if err == nil || asked.Load() != 1 {
			t.Errorf("got error %v after %d calls of Audit, want it refused", err, asked.Load())
		}
		allow := ops.Principal{Name: "eve", Role: ops.Administrator, Allow: func(ops.Action, string) bool { panic("no policy") }}
		if err := operator.As(d, allow).Consumers().Pause(t.Context(), "c", "x"); err == nil {
			t.Error("a change whose Allow panics was made")
		}
		if n := a.Count("SELECT count(*) FROM paused_consumers"); n != 0 {
			t.Error("it is paused")
		}
	})
}
