package schedule_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// catchUpWith fires one schedule whose layer fails at length, and returns the log.
func catchUpWith(t *testing.T, db *bun.DB, before func(a *app)) string {
	t.Helper()
	a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return nil }))
	layered(a, func(bus.ProduceFunc) bus.ProduceFunc {
		return func(context.Context, *bus.Batch) error { return errors.New(strings.Repeat("x", 5<<20)) }
	})
	yearly(t.Context(), a, "x")
	before(a)
	log := &testapp.Lines{}
	p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer,
		schedule.ProcessorConfig{Logger: log.Logger()}))
	if n, err := p.FireDue(t.Context()); n != 1 || err != nil {
		t.Errorf("catch up: got %d and %v, want the one", n, err)
	}
	if got := log.String(); len(got) > 40<<10 || strings.Count(got, "schedule cannot fire") != 1 {
		t.Errorf("log: got %d bytes, want a line of some KB: %.300s", len(got), got)
	}
	return log.String()
}

// TestErrorsOfSchedulesAreLoggedCut has a layer fail with one of some megabytes.
func TestErrorsOfSchedulesAreLoggedCut(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) { catchUpWith(t, db, func(*app) {}) })
	// And when it its error cannot be stored either.
	log := catchUpWith(t, testdb.SQLite(t), func(a *app) {
		a.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON scheduled_messages WHEN NEW.last_error IS NOT NULL BEGIN SELECT RAISE(ABORT, 'no'); END`)
	})
	if !strings.Contains(log, "its error cannot be stored") {
		t.Errorf("log: got %.300s, want that its error cannot be stored", log)
	}
}
