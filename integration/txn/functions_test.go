package txn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// pauseTime is longer than a transaction of the library's own may stand still, and less than a function of the application
// has by default.
const pauseTime = 7 * time.Second

// pause is what a function of the application does that takes its time and asks the database nothing.
func pause(ctx context.Context) error {
	select {
	case <-time.After(pauseTime):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestFunctionsOfTheApplicationMayPauseInTransactions: the bound on transactions that stand still is not for those that wait
// for a function of the application, which are committed.
// Promise: slow-function
func TestFunctionsOfTheApplicationMayPauseInTransactions(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup // they only wait, so that they run at once, however few tests may
	defer all.Wait()
	for name, test := range map[string]func(t *testing.T, db *bun.DB){
		"a transactional consumer":         pausingConsumer,
		"a transactional batch consumer":   pausingBatchConsumer,
		"a group of consumers":             pausingGroup,
		"a function of a projection":       pausingProjection,
		"a batch function of a projection": pausingBatchProjection,
		"an event that is tried again":     pausingRetry,
		"the reset of a projection":        pausingReset,
		"an inline projection":             pausingInline,
		"a transaction at the log":         pausingLog,
		"a decision":                       pausingDecider,
		"a layer of a producer":            pausingLayer,
		"a layer of a schedule's producer": pausingSchedule,
		"the audit of a change":            pausingAudit,
		"the audit of a decision":          pausingAuditOfDecision,
	} {
		all.Go(func() { t.Run(name, func(t *testing.T) { test(t, testdb.Postgres(t)) }) })
	}
}

// effects is an application with a table that has a row for each call that was committed.
func effects(t *testing.T, db *bun.DB, consumers ...bus.Consumer) *app {
	t.Helper()
	a := testapp.New(t, db, consumers...)
	a.Exec("CREATE TABLE effects (n int PRIMARY KEY, xid xid8 NOT NULL)")
	return a
}

func addEffect(ctx context.Context, tx bun.Tx, n int) error {
	_, err := tx.NewRaw("INSERT INTO effects (n, xid) VALUES (?, pg_current_xact_id())", n).Exec(ctx)
	return err
}

// runOnce has a processor consume what waits, each in its first run.
func runOnce(a *app, want int) {
	a.Helper()
	config := testapp.Fast()
	config.MaxAttempts, config.TxConcurrency = 1, 1
	r := a.Start(config)
	testapp.Eventually(a, "all are consumed", a.Empty)
	r.MustStop()
	if poisoned, done := a.Poisoned(), a.Count("SELECT count(*) FROM effects"); len(poisoned) > 0 || done != want {
		a.Errorf("got %d effects, and poisoned %+v, want %d effects, and none of these", done, poisoned, want)
	}
}

func pausingConsumer(t *testing.T, db *bun.DB) {
	a := effects(t, db, outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
		return errors.Join(addEffect(ctx, tx, o.N), pause(ctx))
	}, bus.Timeout(10*time.Second)))
	a.ProduceMany(1)
	runOnce(a, 1)
}

func pausingBatchConsumer(t *testing.T, db *bun.DB) {
	a := effects(t, db, outbox.ConsumeBatchTx("c", func(ctx context.Context, tx bun.Tx, all []order) error {
		for _, o := range all {
			if err := addEffect(ctx, tx, o.N); err != nil {
				return err
			}
		}
		return pause(ctx)
	}, bus.Timeout(10*time.Second)))
	a.ProduceMany(3)
	runOnce(a, 3)
}

// pausingGroup has the second of a group pause, which by then is in a transaction with the first.
func pausingGroup(t *testing.T, db *bun.DB) {
	var calls atomic.Int64
	a := effects(t, db, outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
		if err := addEffect(ctx, tx, o.N); err != nil || calls.Add(1) != 2 {
			return err
		}
		return pause(ctx)
	}, outbox.GroupCommit(10), bus.Timeout(20*time.Second)))
	a.ProduceMany(3)
	runOnce(a, 3)
	if got := a.Count("SELECT max(n) FROM (SELECT count(*) AS n FROM effects GROUP BY xid) shared"); got < 2 {
		t.Errorf("messages in one transaction: got %d, want some that share one with the call that took its time", got)
	}
}

// logApp is an application with an event log.
type logApp struct {
	*app
	log   *eventlog.Log
	types *eventlog.Types
}

func newLogApp(t *testing.T, db *bun.DB, config eventlog.LogConfig) logApp {
	t.Helper()
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[order]()))
	registry := testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Events: types}.NewRegistry())
	producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(registry, outbox.ProducerConfig{}))
	l := logApp{app: &app{T: t, DB: db, Registry: registry, Producer: producer}, types: types}
	l.log = testapp.Must[*eventlog.Log](t)(eventlog.NewLog(registry, producer, config))
	if err := outbox.Migrate(t.Context(), db, registry.Tables()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	l.Exec("CREATE TABLE effects (n int PRIMARY KEY, xid xid8 NOT NULL)")
	return l
}

func (l logApp) append(n int) {
	l.Helper()
	err := l.log.RunInTx(l.Context(), l.DB, func(ctx context.Context, tx bun.Tx) error {
		_, err := l.log.Append(ctx, tx, fmt.Sprintf("order-%d", n), eventlog.AnyVersion, order{N: n})
		return err
	})
	if err != nil {
		l.Fatalf("append: %v", err)
	}
}

func (l logApp) runner(p projection.Projection) *projection.Runner {
	l.Helper()
	return testapp.Must[*projection.Runner](l.T)(projection.NewRunner(l.DB, l.log, projection.RunnerConfig{}, p))
}

// catchUp has a runner apply what there is, which is to succeed at once.
func (l logApp) catchUp(r *projection.Runner) {
	l.Helper()
	if _, err := r.CatchUp(l.Context()); err != nil {
		l.Errorf("catch up: %v", err)
	}
}

func (l logApp) wantEffects(want int) {
	l.Helper()
	if got := l.Count("SELECT count(*) FROM effects"); got != want {
		l.Errorf("effects: got %d, want %d", got, want)
	}
}

func pausingProjection(t *testing.T, db *bun.DB) {
	l := newLogApp(t, db, eventlog.LogConfig{})
	l.append(1)
	l.catchUp(l.runner(projection.Projection{Name: "p",
		On: []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, o order) error {
			return errors.Join(addEffect(ctx, tx, o.N), pause(ctx))
		})}}))
	l.wantEffects(1)
}

func pausingBatchProjection(t *testing.T, db *bun.DB) {
	l := newLogApp(t, db, eventlog.LogConfig{})
	l.append(1)
	l.append(2)
	l.catchUp(l.runner(projection.Projection{Name: "p", Types: []string{order{}.PayloadType()},
		Batch: func(ctx context.Context, tx bun.Tx, all []eventlog.RecordedEvent) error {
			for _, e := range all {
				if err := addEffect(ctx, tx, e.Data.(order).N); err != nil {
					return err
				}
			}
			return pause(ctx)
		}}))
	l.wantEffects(2)
}

func pausingRetry(t *testing.T, db *bun.DB) {
	l := newLogApp(t, db, eventlog.LogConfig{})
	l.append(1)
	failed := false
	r := l.runner(projection.Projection{Name: "p", OnError: projection.Park, MaxAttempts: 1,
		On: []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, o order) error {
			if !failed {
				failed = true
				return errors.New("no luck")
			}
			return errors.Join(addEffect(ctx, tx, o.N), pause(ctx))
		})}})
	l.catchUp(r)
	if n, err := r.RetryParked(t.Context(), "p"); n != 1 || err != nil {
		t.Errorf("retry: got %d and %v, want 1", n, err)
	}
	l.wantEffects(1)
}

func pausingReset(t *testing.T, db *bun.DB) {
	l := newLogApp(t, db, eventlog.LogConfig{})
	r := l.runner(projection.Projection{Name: "p",
		On:    []projection.Handler{projection.On(func(context.Context, bun.Tx, order) error { return nil })},
		Reset: func(ctx context.Context, tx bun.Tx) error { return errors.Join(addEffect(ctx, tx, 1), pause(ctx)) }})
	if err := r.Rebuild(t.Context(), "p"); err != nil {
		t.Errorf("rebuild: %v", err)
	}
	l.wantEffects(1)
}

// pausingInline pauses in the append, whose transaction is the application's, and in the rebuild.
func pausingInline(t *testing.T, db *bun.DB) {
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[order]()))
	inline := testapp.Must[*projection.Inline](t)(projection.NewInline(types, projection.Projection{Name: "p",
		On: []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, o order) error {
			return errors.Join(addEffect(ctx, tx, o.N), pause(ctx))
		})},
		Reset: func(ctx context.Context, tx bun.Tx) error {
			var bound string // for a client that vanishes in it
			if err := tx.NewRaw("SELECT current_setting('idle_in_transaction_session_timeout')").Scan(ctx, &bound); err != nil || bound == "0" {
				return fmt.Errorf("idle bound %q, want one (%w)", bound, err)
			}
			_, err := tx.ExecContext(ctx, "DELETE FROM effects")
			return err
		}}))
	l := newLogApp(t, db, eventlog.LogConfig{Inline: []eventlog.Inline{inline}})
	l.append(1)
	l.wantEffects(1)
	if err := inline.Rebuild(t.Context(), db, l.log); err != nil {
		t.Errorf("rebuild: %v", err)
	}
	l.wantEffects(1)
}

func pausingLog(t *testing.T, db *bun.DB) {
	l := newLogApp(t, db, eventlog.LogConfig{})
	err := l.log.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error { return errors.Join(addEffect(ctx, tx, 1), pause(ctx)) })
	if err != nil {
		t.Errorf("transaction: %v", err)
	}
	l.wantEffects(1)
}

func pausingDecider(t *testing.T, db *bun.DB) {
	l := newLogApp(t, db, eventlog.LogConfig{})
	d := decider.Decider[int, int, order]{Category: "order", Evolve: func(sum int, o order) int { return sum + o.N },
		Decide: func(ctx context.Context, _, n int) ([]order, error) { return []order{{N: n}}, pause(ctx) }}
	if state, _, err := decider.Execute(t.Context(), l.log, db, d, "1", 3); state != 3 || err != nil {
		t.Errorf("execute: got %d and %v, want 3", state, err)
	}
}

// pausingLayerOf is a layer that pauses once what it wraps has been written.
func pausingLayerOf(next bus.ProduceFunc) bus.ProduceFunc {
	return func(ctx context.Context, b *bus.Batch) error { return errors.Join(next(ctx, b), pause(ctx)) }
}

func pausingLayer(t *testing.T, db *bun.DB) {
	a := testapp.New(t, db, testapp.Consumed("c"))
	a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
		outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{pausingLayerOf}}))
	a.Produce(order{})
	if got := len(a.Pending()); got != 1 {
		t.Errorf("messages: got %d, want 1", got)
	}
}

func pausingSchedule(t *testing.T, db *bun.DB) {
	a := testapp.New(t, db, testapp.Consumed("c"))
	a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
		outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{pausingLayerOf}}))
	testapp.Must[int64](t)(a.Scheduler().Create(t.Context(), db, order{}, "@yearly", "UTC"))
	a.Exec("UPDATE scheduled_messages SET available_after = statement_timestamp() - interval '1 s'")
	var said testapp.Lines
	p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer,
		schedule.ProcessorConfig{Logger: said.Logger()}))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	testapp.Eventually(t, "it has fired", func() bool { return len(a.Pending()) == 1 || said.String() != "" })
	stop()
	if err := <-done; err != nil || said.String() != "" {
		t.Errorf("got %v, and the log says %q, want nothing", err, said.String())
	}
}

func auditedService(t *testing.T, a *app) *operator.Session {
	t.Helper()
	return operator.As(testapp.Must[*ops.Service](t)(ops.New(ops.Config{DB: a.DB, Registry: a.Registry, UndoWindow: -1,
		Logger: slog.New(slog.DiscardHandler),
		Audit:  func(ctx context.Context, _ ops.Change) error { return pause(ctx) },
	})), ops.Principal{Name: "ada", Role: ops.Administrator})
}

func pausingAudit(t *testing.T, db *bun.DB) {
	a := testapp.New(t, db, testapp.Consumed("c"))
	if err := auditedService(t, a).Consumers().Pause(t.Context(), "c", "it is broken"); err != nil {
		t.Errorf("pause: %v", err)
	}
	if got := a.Count("SELECT count(*) FROM paused_consumers"); got != 1 {
		t.Errorf("paused consumers: got %d, want 1", got)
	}
}

// pausingAuditOfDecision has the audit of an operation's start pause.
func pausingAuditOfDecision(t *testing.T, db *bun.DB) {
	a := testapp.New(t, db, testapp.Consumed("c"))
	a.ProduceMany(1)
	session := auditedService(t, a)
	o, err := session.Operations().Plan(t.Context(), ops.Cancel, ops.Target{Pending: &admin.Filter{Consumer: "c"}})
	if err == nil {
		o, err = session.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "nobody wants it"})
	}
	if err != nil || o.State != ops.Waiting {
		t.Errorf("start: got %s and %v, want it to wait", o.State, err)
	}
}
