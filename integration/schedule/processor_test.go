package schedule_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func TestSchedulesTellTheirHealth(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := testapp.New(t, testdb.SQLite(t), testapp.Counting("c", &n))
	p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(a.DB, a.Registry, a.Producer, schedule.ProcessorConfig{}))
	if got := p.Health(); got.Ready || got.Err != nil {
		t.Errorf("before: got %+v, want it not ready, without an error", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	testapp.Eventually(t, "it is ready", func() bool { return p.Health().Ready })
	stop()
	if err := <-done; err != nil || p.Health().Ready {
		t.Errorf("after: got %v and %+v, want it not ready", err, p.Health())
	}
}

func TestCatchUpFiresOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return nil }))
		p, err := schedule.NewProcessor(db, a.Registry, a.Producer, schedule.ProcessorConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		const schedules = 130 // more than one batch
		testapp.OK(t, a.Producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) (err error) {
			for range schedules {
				err = errors.Join(err, testapp.Second(a.Scheduler().Create(ctx, tx, order{ID: "1"}, "@yearly", "UTC")))
			}
			return err
		}))
		fire := func(want int) {
			t.Helper()
			if n, err := p.FireDue(t.Context()); n != want || err != nil {
				t.Errorf("fire: got %d, %v, want %d", n, err, want)
			}
		}
		fire(0)
		makeDue(a, time.Second)
		fire(schedules)
		fire(0)
		if n := len(a.Pending()); n != schedules {
			t.Errorf("got %d messages, want %d", n, schedules)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.FireDue(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: got %v, want its error", err)
		}
	})
}
