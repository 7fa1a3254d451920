package ops_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
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
	ctx, stop := context.WithCancel(context.WithValue(context.WithoutCancel(p.t.Context()), marked{}, true))
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
			testapp.Must[ops.Operation](t)(s.Operations().Resume(t.Context(), "mended by now", o.ID, 0))
			if after = awaitState(t, s, o.ID, ops.Done); after.Changed != 3 {
				t.Errorf("in the end: it says that %d changed, want 3", after.Changed)
			}
		})
	})
}

type deposited struct{ Amount int }

func (deposited) PayloadType() string { return "account.deposited" }

// TestAResetThatPanicsPausesItsOperation, rather than the process: every other one would take the operation up and die, too.
func TestAResetThatPanicsPausesItsOperation(t *testing.T) {
	t.Parallel()
	for name, reset := range map[string]func(context.Context, bun.Tx) error{
		"panics":             func(context.Context, bun.Tx) error { panic("no table") },
		"ends its goroutine": func(context.Context, bun.Tx) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				service, readers, err := balances(db, reset)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(outbox.Migrate(t.Context(), db, bus.Tables{}),
					readers.Check(t.Context())); err != nil { // which enters the projection
					t.Fatal(err)
				}
				session := operator.As(service, ops.Principal{Name: "ada", Role: ops.Administrator})
				o := testapp.Must[ops.Operation](t)(session.Operations().Plan(t.Context(), ops.Rebuild, ops.Target{Projection: "balances"}))
				testapp.Must[ops.Operation](t)(session.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "columns were added"}))
				runner := testapp.Must[*ops.Runner](t)(ops.NewRunner(service, readers))
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- runner.Run(ctx) }()
				paused := func() bool {
					found, _, err := session.Operations().List(t.Context(), admin.Page{})
					return err == nil && found[0].State == ops.Paused && strings.HasPrefix(found[0].Note, "failed")
				}
				testapp.Eventually(t, "the operation is paused, and says why", paused)
				stop()
				if err := <-ended; err != nil {
					t.Errorf("run: %v", err)
				}
			})
		})
	}
}

// TestAnOperationOfANewerVersionIsLeftToIt: a filter field, or a kind, that this version does not know would have it change more
// than was planned. Others are carried out meanwhile.
// Promise: newer-plan
func TestAnOperationOfANewerVersionIsLeftToIt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"), testapp.Consumed("e"), testapp.Consumed("f"),
			testapp.Consumed("g"))
		a.ProduceMany(3)
		service := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
		session := operator.As(service, someone(ops.Administrator))
		start := func(consumer, change string, args ...any) int64 {
			o := planned(t, session, ops.Cancel, ops.Target{Pending: &admin.Filter{Consumer: consumer}})
			testapp.Must[ops.Operation](t)(session.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "of a test"}))
			a.Exec("UPDATE message_operations SET "+change+" WHERE id = ?", append(args, o.ID)...)
			return o.ID
		}
		newer := []int64{
			start("c", "target = ?", `{"pending":{"consumer":"c","tenant":"acme"}}`),
			start("d", "target = ?", `{"pending":{"consumer":"d"},"slowly":true}`),
			start("e", "kind = ?", "archive"),
		}
		runner(t, service)
		for _, known := range []string{"f", "g"} { // two, so that the runner has looked at the others before the second
			awaitState(t, session, start(known, "kind = ?", "cancel"), ops.Done)
		}
		for _, id := range newer {
			if o := operationOf(t, session, id); o.State != ops.Waiting {
				t.Errorf("got %+v, want that it waits for a version that knows it", o)
			}
		}
		if left := len(a.Pending()); left != 9 {
			t.Errorf("got %d messages left, want 9 of 15", left)
		}
	})
}
