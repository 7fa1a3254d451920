package ops_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

type parking struct {
	t       *testing.T
	service *ops.Service
	readers *projection.Runner
	log     *eventlog.Log
	db      *bun.DB
	bad     func(amount int) bool
	mu      sync.Mutex
}

func newParking(t *testing.T, db *bun.DB) *parking {
	t.Helper()
	p := &parking{t: t, db: db, bad: func(int) bool { return true }}
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[deposited]()))
	registry := testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Events: types}.NewRegistry())
	producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(registry, outbox.ProducerConfig{}))
	p.log = testapp.Must[*eventlog.Log](t)(eventlog.NewLog(registry, producer, eventlog.LogConfig{}))
	testapp.OK(t, outbox.Migrate(t.Context(), db, bus.Tables{}))
	quiet := slog.New(slog.DiscardHandler)
	config := projection.RunnerConfig{Logger: quiet}
	p.readers = testapp.Must[*projection.Runner](t)(projection.NewRunner(db, p.log, config, projection.Projection{
		Name: "balances", OnError: projection.Park, MaxAttempts: 1, Reset: func(context.Context, bun.Tx) error { return nil },
		On: []projection.Handler{projection.On(func(_ context.Context, _ bun.Tx, e deposited) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.bad(e.Amount) {
				return bus.Permanent(errors.New("bad"))
			}
			return nil
		})},
	}))
	p.service = testapp.Must[*ops.Service](t)(ops.New(ops.Config{DB: db, Registry: registry, UndoWindow: -1, Logger: quiet}))
	return p
}

func (p *parking) park(stream string, amount int) {
	p.t.Helper()
	err := p.log.RunInTx(p.t.Context(), p.db, func(ctx context.Context, tx bun.Tx) error {
		return testapp.Second(p.log.Append(ctx, tx, stream, eventlog.AnyVersion, deposited{amount}))
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.readers.CatchUp(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *parking) run(fn func()) {
	runner := testapp.Must[*ops.Runner](p.t)(ops.NewRunner(p.service, p.readers))
	ctx, stop := context.WithCancel(context.WithoutCancel(p.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	fn()
	stop()
	<-ended
}

// TestRetryOfParkedEventsCoversOnlyThosePlanned: events that were parked after the plan was made are not retried by it.
// Promise: plan
func TestRetryOfParkedEventsCoversOnlyThosePlanned(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		p := newParking(t, db)
		p.park("account-1", 1)
		s := operator.As(p.service, someone(ops.Administrator))
		o := planned(t, s, ops.RetryParked, ops.Target{Projection: "balances"})
		p.park("account-2", 2)
		p.mu.Lock()
		p.bad = func(int) bool { return false }
		p.mu.Unlock()
		testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "mended"}))
		p.run(func() {
			after := awaitState(t, s, o.ID, ops.Done)
			if o.Preview.Messages != 1 || after.Changed != 1 {
				t.Errorf("planned %d, changed %d, want 1 and 1", o.Preview.Messages, after.Changed)
			}
		})
	})
}

// TestARetryThatFailsCountsWhatItApplied, and a resumed one adds to that.
func TestARetryThatFailsCountsWhatItApplied(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		p := newParking(t, db)
		p.park("account-1", 1)
		p.park("account-2", 2)
		p.park("account-3", 3)
		s := operator.As(p.service, someone(ops.Administrator))
		o := planned(t, s, ops.RetryParked, ops.Target{Projection: "balances"})
		p.mu.Lock()
		p.bad = func(amount int) bool { return amount == 3 }
		p.mu.Unlock()
		testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "mended"}))
		p.run(func() {
			after := awaitState(t, s, o.ID, ops.Paused)
			left := testapp.Must[[]projection.Parked](t)(p.readers.Parked(t.Context(), "balances", 10))
			if len(left) != 1 || after.Changed != 2 {
				t.Errorf("%d are left, and it says that %d changed (%s), want 1 and 2", len(left), after.Changed, after.Note)
			}
			p.mu.Lock()
			p.bad = func(int) bool { return false }
			p.mu.Unlock()
			testapp.Must[ops.Operation](t)(s.Operations().Resume(t.Context(), "mended by now", o.ID))
			if after = awaitState(t, s, o.ID, ops.Done); after.Changed != 3 {
				t.Errorf("in the end: it says that %d changed, want 3", after.Changed)
			}
		})
	})
}
