package schedule_test

import (
	"context"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// TestWhatTakesARunNowBack has another schedule do so, and another payload not.
func TestWhatTakesARunNowBack(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return nil }))
		s, ctx := a.Scheduler(), t.Context()
		p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, schedule.ProcessorConfig{}))
		id := testapp.Must[int64](t)(s.Upsert(ctx, db, order{ID: "x"}, "@yearly", "UTC", schedule.Name("n")))
		for _, step := range []struct {
			what   string
			change func() error
			fires  int
		}{
			{"UpdateSchedule", func() error { return s.UpdateSchedule(ctx, db, id, "0 0 2 1 *", "UTC") }, 0},
			{"UpdatePayload", func() error { return s.UpdatePayload(ctx, db, id, order{ID: "y"}) }, 1},
			{"Schedule", func() error {
				_, err := s.Upsert(ctx, db, order{ID: "z"}, "@yearly", "UTC", schedule.Name("n"))
				return err
			}, 1},
		} {
			testapp.OK(t, s.Trigger(ctx, db, id))
			testapp.OK(t, step.change())
			if n, err := p.FireDue(ctx); n != step.fires || err != nil {
				t.Errorf("asked for before %s: got %d fires and %v, want %d", step.what, n, err, step.fires)
			}
		}
	})
}
