package notify_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/notify"
	"github.com/asyncmonolith/asyncmonolith-go/notify/pgxnotify"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// rarely is a configuration with which a processor finds nothing in time unless
// it is woken.
func rarely() outbox.ProcessorConfig {
	config := testapp.Fast()
	config.PollInterval = time.Hour
	return config
}

// joined runs a notifier until the end of the test, or until stop is called.
func joined(a *app, config notify.NotifierConfig) (n *notify.Notifier, stop func()) {
	a.Helper()
	n, err := notify.NewNotifier(a.DB, a.Registry, config)
	if err != nil {
		a.Fatalf("notifier: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Run(ctx); err != nil {
			a.Errorf("notifier: got %v, want nil", err)
		}
	}()
	stop = func() { cancel(); <-done }
	a.Cleanup(stop)
	return n, stop
}

// listening runs a notifier that listens, and waits until it does.
func listening(a *app, listener notify.Listener) {
	a.Helper()
	n, _ := joined(a, notify.NotifierConfig{Listener: listener})
	testapp.Eventually(a.T, "notifications are heard", func() bool { return n.Health().Ready })
}

func direct(t *testing.T, dsn string) *pgxnotify.Listener {
	t.Helper()
	config := testapp.Must[*pgx.ConnConfig](t)(pgx.ParseConfig(dsn))
	return pgxnotify.New(config)
}

// notifying is the set-up that docs/wakeups.md shows.
func notifying(ctx context.Context, db *bun.DB, registry *bus.Registry) error {
	// snippet: notifier
	notifier, err := notify.NewNotifier(db, registry, notify.NotifierConfig{Listener: pgxnotify.FromDB(db.DB)})
	if err != nil {
		return err
	}
	return notifier.Run(ctx) // blocks: run it beside the processors
	// end
}

func inOwnTx(ctx context.Context, db *bun.DB, registry *bus.Registry, fn func(context.Context, bun.Tx) error) error {
	// snippet: own
	if err := db.RunInTx(ctx, nil, fn); err != nil {
		return err
	}
	registry.NotifyCommitted("order.placed")
	return nil
	// end
}

// Whatever commits messages in one process wakes the processor of another, which
// by itself would look in an hour.
func TestOtherProcessesAreWoken(t *testing.T) {
	t.Parallel()
	for name, listener := range map[string]func(dsn string, db *bun.DB) notify.Listener{
		"by a connection of the application's kind": func(_ string, db *bun.DB) notify.Listener { return pgxnotify.FromDB(db.DB) },
		"by a connection of their own":              func(dsn string, _ *bun.DB) notify.Listener { return direct(t, dsn) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.DirectDSN(t)
			var done, chained atomic.Int64
			var web *app
			worker := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("c", &done),
				bus.Consume("chained", func(context.Context, refund) error {
					chained.Add(1)
					return nil
				}))
			worker.Start(rarely())
			listening(worker, listener(dsn, worker.DB))
			web = testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("c", &done),
				bus.Consume("chained", func(context.Context, refund) error { return nil }))
			joined(web, notify.NotifierConfig{}) // only sends
			inTx := func(ctx context.Context, tx bun.Tx) error {
				_, err := web.Producer.Produce(ctx, tx, order{})
				return err
			}
			for i, produce := range []func() error{
				func() error { _, err := web.Producer.Produce(t.Context(), web.DB, order{}); return err },
				func() error { return web.Producer.RunInTx(t.Context(), web.DB, inTx) },
				func() error { return inOwnTx(t.Context(), web.DB, web.Registry, inTx) },
			} {
				testapp.OK(t, produce())
				testapp.Eventually(t, "the other process is woken", func() bool { return done.Load() == int64(i+1) })
			}
			// It looks ahead for what was produced to run later, too.
			web.Produce(refund{}, outbox.Delay(50*time.Millisecond))
			testapp.Eventually(t, "the other process looks again", func() bool { return chained.Load() == 1 })
		})
	}
}

func TestOtherProcessesAreWokenBySchedules(t *testing.T) {
	t.Parallel()
	dsn := testdb.DirectDSN(t)
	var done atomic.Int64
	newProcess := func() (*app, *schedule.Scheduler) {
		a := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("c", &done))
		scheduler := testapp.Must[*schedule.Scheduler](t)(schedule.NewScheduler(a.Registry, schedule.SchedulerConfig{}))
		return a, scheduler
	}
	worker, _ := newProcess()
	worker.Start(rarely())
	processor, err := schedule.NewProcessor(worker.DB, worker.Registry, worker.Producer, schedule.ProcessorConfig{PollInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- processor.Run(ctx) }()
	go func() { stopped <- notifying(ctx, worker.DB, worker.Registry) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-stopped, <-stopped); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	web, scheduler := newProcess()
	joined(web, notify.NotifierConfig{})
	id := testapp.Must[int64](t)(scheduler.Create(t.Context(), web.DB, order{}, "0 0 4 29 2 *", "UTC"))
	testapp.OK(t, scheduler.Trigger(t.Context(), web.DB, id))
	testapp.Eventually(t, "the schedule fires", func() bool { return done.Load() == 1 })
}

// tap is a Listener that keeps what it hears.
type tap struct {
	notify.Listener
	mu      sync.Mutex
	channel string
	texts   []string
}

func (l *tap) Listen(ctx context.Context, channel string, listening func(), received func(string)) error {
	l.mu.Lock()
	l.channel = channel
	l.mu.Unlock()
	return l.Listener.Listen(ctx, channel, listening, func(text string) {
		l.mu.Lock()
		l.texts = append(l.texts, text)
		l.mu.Unlock()
		received(text)
	})
}

func (l *tap) heard() []string { l.mu.Lock(); defer l.mu.Unlock(); return slices.Clone(l.texts) }

// A rolled-back transaction notifies nobody, and neither does one of the caller's
// own, of which nobody knows when it commits.
func TestOnlyKnownCommitsNotify(t *testing.T) {
	t.Parallel()
	dsn := testdb.DirectDSN(t)
	var done atomic.Int64
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("c", &done))
	hears := &tap{Listener: direct(t, dsn)}
	other := testapp.New(t, testdb.OpenPostgres(t, dsn))
	listening(other, hears)
	_, stop := joined(a, notify.NotifierConfig{})
	undone := errors.New("undone")
	produce := func(ctx context.Context, tx bun.Tx) error {
		_, err := a.Producer.Produce(ctx, tx, order{})
		return err
	}
	for range 3 {
		err := a.Producer.RunInTx(t.Context(), a.DB, func(ctx context.Context, tx bun.Tx) error {
			return errors.Join(produce(ctx, tx), undone)
		})
		if !errors.Is(err, undone) {
			t.Fatal(err)
		}
		testapp.OK(t, a.DB.RunInTx(t.Context(), nil, produce))
	}
	testapp.OK(t, a.Producer.RunInTx(t.Context(), a.DB, produce))
	stop() // sends what is left
	a.Exec("SELECT pg_notify(?, 'the end')", hears.channel)
	testapp.Eventually(t, "the end is heard", func() bool { return slices.Contains(hears.heard(), "the end") })
	var produced []string
	for _, text := range hears.heard() {
		if strings.HasSuffix(text, " messages") {
			produced = append(produced, text)
		}
	}
	if len(produced) != 1 {
		t.Errorf("notifications of one commit, three rollbacks and three commits nobody announced: got %q, want one", produced)
	}
}

// The connection that listens is terminated twice a second: everything is consumed,
// woken or polled for, and the log says it once.
func TestTerminatedListenersLoseNothing(t *testing.T) {
	t.Parallel()
	const messages = 300
	dsn := testdb.DirectDSN(t)
	var done atomic.Int64
	worker := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("c", &done))
	config := testapp.Fast()
	config.PollInterval = 200 * time.Millisecond
	r := worker.Start(config)
	var log testapp.Lines
	n, _ := joined(worker, notify.NotifierConfig{Listener: pgxnotify.FromDB(worker.DB.DB), Logger: log.Logger()})
	web := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("c", &done))
	joined(web, notify.NotifierConfig{})
	terminated, start := 0, time.Now()
	kill, produce := time.NewTicker(500*time.Millisecond), time.NewTicker(10*time.Millisecond)
	defer kill.Stop()
	defer produce.Stop()
	for i := 0; i < messages; {
		select {
		case <-kill.C:
			terminated += web.Count("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'")
		case <-produce.C:
			web.Produce(order{N: i})
			i++
		}
	}
	testapp.Eventually(t, "everything is consumed", worker.Empty)
	r.MustStop()
	if got := done.Load(); got != messages {
		t.Errorf("consumed: got %d, want %d, each once", got, messages)
	}
	if terminated < 2 {
		t.Errorf("listeners terminated: got %d, want some, or this tests nothing", terminated)
	}
	testapp.Eventually(t, "notifications are heard again", func() bool { return n.Health().Ready })
	if got, most := strings.Count(log.String(), "level=WARN"), 1+int(time.Since(start).Minutes()); got < 1 || got > most {
		t.Errorf("complaints: got %d, want 1 to %d, one in a minute:\n%s", got, most, log.String())
	}
}

// What keeps notifications from being heard is said, once, and polling goes on.
func TestDeafNotifiersSaySo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(t *testing.T) (db *bun.DB, listener notify.Listener)
		want    string
	}{
		"through a pooler": {func(t *testing.T) (*bun.DB, notify.Listener) {
			db := testdb.OpenPostgres(t, testdb.Pgbouncer(t, testdb.DirectDSN(t)))
			return db, pgxnotify.FromDB(db.DB)
		}, "LISTEN needs a direct connection"},
		"in another database": {func(t *testing.T) (*bun.DB, notify.Listener) {
			return testdb.OpenPostgres(t, testdb.DirectDSN(t)), direct(t, testdb.DirectDSN(t))
		}, "use the same database?"},
		"without a server": {func(t *testing.T) (*bun.DB, notify.Listener) {
			return testdb.OpenPostgres(t, testdb.DirectDSN(t)), direct(t, "postgres://nobody@127.0.0.1:1/none?sslmode=disable")
		}, "connect"},
		"with another driver": {func(t *testing.T) (*bun.DB, notify.Listener) {
			return testdb.OpenPostgres(t, testdb.DirectDSN(t)), pgxnotify.FromDB(testdb.SQLite(t).DB)
		}, "a connection of pgx/v5/stdlib is needed"},
		"without a pool": {func(t *testing.T) (*bun.DB, notify.Listener) {
			return testdb.OpenPostgres(t, testdb.DirectDSN(t)), pgxnotify.FromDB(nil)
		}, "the database handle is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, listener := test.prepare(t)
			var done atomic.Int64
			a := testapp.New(t, db, testapp.Counting("c", &done))
			a.Start(testapp.Fast())
			var log testapp.Lines
			n, stop := joined(a, notify.NotifierConfig{Listener: listener, Logger: log.Logger()})
			testapp.Eventually(t, "the log says so", func() bool { return strings.Contains(log.String(), test.want) })
			web := testapp.New(t, db, testapp.Counting("c", &done)) // its registry has no notifier
			web.Produce(order{})
			testapp.Eventually(t, "polling goes on", func() bool { return done.Load() == 1 })
			if h := n.Health(); h.Ready || h.Err == nil {
				t.Errorf("health: got %+v, want why nothing is heard", h)
			}
			stop()
			if got := strings.Count(log.String(), "\n"); got != 1 {
				t.Errorf("log: got %d lines, want 1:\n%s", got, log.String())
			}
		})
	}
}

// instrumented is a driver's connection as instrumentation hands it out.
type instrumented struct{ driver.Conn }

func (c instrumented) Raw() driver.Conn { return c.Conn }

type instrumentation struct{ driver.Connector }

func (i instrumentation) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := i.Connector.Connect(ctx)
	return instrumented{instrumented{conn}}, err
}

func TestListenersConnectAsThePoolDoes(t *testing.T) {
	t.Parallel()
	config := testapp.Must[*pgx.ConnConfig](t)(pgx.ParseConfig(testdb.DirectDSN(t)))
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { t.Error("the application's handler was called") }
	conns := sql.OpenDB(instrumentation{stdlib.GetConnector(*config)})
	t.Cleanup(func() { _ = conns.Close() })
	conns.SetMaxOpenConns(1) // none of which the listener keeps
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry())
	a := &app{T: t, DB: bun.NewDB(conns, pgdialect.New()), Registry: registry}
	listening(a, pgxnotify.FromDB(conns))
}

// The application goes through the pooler, the listener past it.
func TestOnlyTheListenerNeedsADirectConnection(t *testing.T) {
	t.Parallel()
	dsn := testdb.DirectDSN(t)
	through := testdb.Pgbouncer(t, dsn)
	var done atomic.Int64
	worker := testapp.New(t, testdb.OpenPostgres(t, through), testapp.Counting("c", &done))
	worker.Start(rarely())
	listening(worker, direct(t, dsn))
	web := testapp.New(t, testdb.OpenPostgres(t, through), testapp.Counting("c", &done))
	joined(web, notify.NotifierConfig{})
	web.Produce(order{})
	testapp.Eventually(t, "the other process is woken", func() bool { return done.Load() == 1 })
}

// Names of the greatest length still make a channel that both sides agree on.
func TestLongNamesMakeAChannel(t *testing.T) {
	t.Parallel()
	tables := bus.Tables{Schema: strings.Repeat("s", 63), Prefix: strings.Repeat("p", 24)}
	registry := testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Tables: tables}.NewRegistry())
	a := &app{T: t, DB: testdb.OpenPostgres(t, testdb.DirectDSN(t)), Registry: registry}
	listening(a, pgxnotify.FromDB(a.DB.DB))
}

func TestNotifiersThatCannotBeMade(t *testing.T) {
	t.Parallel()
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry())
	for name, test := range map[string]struct {
		db       *bun.DB
		registry *bus.Registry
		want     string
	}{
		"no database": {nil, registry, "is nil"},
		"no registry": {testdb.OpenPostgres(t, testdb.DirectDSN(t)), nil, "is nil"},
		"SQLite":      {testdb.SQLite(t), registry, "has no notifications"},
		"MariaDB":     {testdb.MariaDB(t), registry, "has no notifications"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := notify.NewNotifier(test.db, test.registry, notify.NotifierConfig{}); err == nil ||
				!strings.Contains(err.Error(), test.want) ||
				errors.Is(err, errors.ErrUnsupported) != strings.HasPrefix(test.want, "has no") {
				t.Errorf("got %v, want %q, unsupported only for want of notifications", err, test.want)
			}
		})
	}
}

func TestFxNotifiesOtherProcesses(t *testing.T) {
	t.Parallel()
	dsn := testdb.DirectDSN(t)
	var done atomic.Int64
	var n *notify.Notifier
	app := fxtest.New(t, fx.Supply(testdb.OpenPostgres(t, dsn), rarely()), fxmodule.Module, fxmodule.Migrate(),
		// snippet: fx
		fx.Provide(func(db *bun.DB) notify.Listener { return pgxnotify.FromDB(db.DB) }),
		// end
		fxmodule.Consumers(testapp.Counting("c", &done)), fx.Populate(&n))
	app.RequireStart()
	defer app.RequireStop()
	testapp.Eventually(t, "notifications are heard", func() bool { return n.Health().Ready })
	web := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("c", &done))
	joined(web, notify.NotifierConfig{})
	web.Produce(order{})
	testapp.Eventually(t, "the application is woken", func() bool { return done.Load() == 1 })
}

func TestFxRefusesTwoListeners(t *testing.T) {
	t.Parallel()
	db := testdb.OpenPostgres(t, testdb.DirectDSN(t))
	one := pgxnotify.FromDB(db.DB)
	err := fx.New(fx.NopLogger, fx.Supply(db, notify.NotifierConfig{Listener: one}), fxmodule.Module,
		fx.Provide(func() notify.Listener { return one })).Err()
	if err == nil || !strings.Contains(err.Error(), "both notify.Listener and notify.NotifierConfig.Listener") {
		t.Errorf("got %v, want an error that names both", err)
	}
}
