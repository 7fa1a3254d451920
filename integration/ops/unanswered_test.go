package ops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
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

// TestARedactThatPanicsHidesContents, also from a search and from the log, whatever it panics with.
func TestARedactThatPanicsHidesContents(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, log := hiding(t, db), &testapp.Lines{}
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) {
			c.Logger = log.Logger()
			c.Redact = func(_ context.Context, c ops.Content) ops.Content { panic(fmt.Sprint(c, " ", secret)) }
		})
		s := operator.As(d, someone(ops.Administrator))
		if shown := everything(t, s); strings.Contains(shown, secret) || !strings.Contains(shown, `"c"`) {
			t.Errorf("got %s, want all but the secret", shown)
		}
		if _, _, err := s.Poisoned().List(t.Context(), poison.Filter{Error: secret}, admin.Page{}); !errors.Is(err, ops.ErrRedacted) {
			t.Errorf("search: got error %v, want ErrRedacted", err)
		}
		if got := log.String(); strings.Count(got, "Config.Redact failed") != 1 || strings.Contains(got, secret) {
			t.Errorf("log: got %s, want one warning without the secret", got)
		}
	})
}

// TestIDsThatDoNotExistYetAreNoWayAroundAllow: a principal that may not change consumer d names an id that gets its message only
// while Allow is asked about the others. That message stays as it is, and is reported as missing.
// Promise: plan
func TestIDsThatDoNotExistYetAreNoWayAroundAllow(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"), testapp.Consumed("d"))
		a.Exec("UPDATE poisoned_messages SET id = id + 1000 WHERE consumer_type = 'd'")
		var appears func()
		s := operator.As(serviceOf(t, db, a.Registry), ops.Principal{Name: "eve", Role: ops.Administrator,
			Allow: func(_ ops.Action, consumer string) bool {
				if consumer == "c" {
					appears()
				}
				return consumer != "d"
			}})
		pending := func() (ids []int64) {
			a.Exec("DELETE FROM consumer_messages")
			a.ProduceMany(1)
			last := int64(a.Count("SELECT MAX(id) FROM consumer_messages"))
			appears = sync.OnceFunc(func() { a.ProduceMany(1) })
			a.Exec("DELETE FROM consumer_messages WHERE consumer_type = 'd'")
			return []int64{int64(a.Count("SELECT id FROM consumer_messages")), last + 1, last + 2}
		}
		for what, change := range map[string]func(ids []int64) (admin.Result, error){
			"cancel":  func(ids []int64) (admin.Result, error) { return s.Messages().Cancel(t.Context(), "", ids...) },
			"run now": func(ids []int64) (admin.Result, error) { return s.Messages().RunNow(t.Context(), "", ids...) },
			"reschedule": func(ids []int64) (admin.Result, error) {
				return s.Messages().Reschedule(t.Context(), "", time.Now().Add(time.Hour), ids...)
			},
		} {
			ids := pending()
			if done, err := change(ids); err != nil || done.Changed != 1 || !slices.Equal(done.Missing, ids[1:]) {
				t.Errorf("%s of %v: got %+v, error %v, want the first changed and the others missing", what, ids, done, err)
			}
		}
		for what, change := range map[string]func(ids ...int64) (int, error){
			"requeue": func(ids ...int64) (int, error) {
				done, err := s.Poisoned().Requeue(t.Context(), "", ids...)
				return done.Requeued, err
			},
			"discard": func(ids ...int64) (int, error) { return s.Poisoned().Discard(t.Context(), "", ids...) },
		} {
			mine := int64(a.Count("SELECT MIN(id) FROM poisoned_messages WHERE consumer_type = 'c'"))
			theirs := int64(a.Count("SELECT MIN(id) FROM poisoned_messages WHERE consumer_type = 'd'"))
			appears = sync.OnceFunc(func() { a.Exec("UPDATE poisoned_messages SET id = id - 1000 WHERE id = ?", theirs) })
			if n, err := change(mine, theirs-1000); err != nil || n != 1 {
				t.Errorf("%s: got %d changed, error %v, want 1", what, n, err)
			}
		}
		if left := a.Count("SELECT count(*) FROM poisoned_messages WHERE consumer_type = 'd'"); left != 3 {
			t.Errorf("poisoned messages of d: got %d, want all 3", left)
		}
	})
}
