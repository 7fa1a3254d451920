package eventlog_test

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

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

func TestRebuildInPlace(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		p := balances()
		p.Shards = 2
		r := l.runner(p)
		l.fill(5, 30)
		l.catchUp(r)
		l.exec("UPDATE balances SET amount = 0")
		running(t, "runner", r.Run)
		var writers sync.WaitGroup
		writers.Go(func() { l.fill(5, 30) })
		testapp.OK(t, r.Rebuild(l.ctx, "balances"))
		writers.Wait()
		testapp.OK(t, r.WaitFor(l.ctx, "balances", l.append("account-0", eventlog.AnyVersion, moved{1})))
		l.mustFold("")
		if n := l.count("SELECT count(*) FROM applied WHERE mode = 'replay'"); n < 30 ||
			l.count("SELECT count(*) FROM applied WHERE mode <> 'replay'") < 60 {
			t.Errorf("events applied as a replay: got %d, want those applied before", n)
		}
		bare := balances()
		bare.Reset, bare.Shards = nil, 2
		if err := l.runner(bare).Rebuild(l.ctx, "balances"); err == nil {
			t.Error("rebuild without a Reset: got no error")
		}
		if err := r.Rebuild(l.ctx, "nonsense"); !errors.Is(err, projection.ErrUnknown) {
			t.Errorf("rebuild of nothing: got %v, want ErrUnknown", err)
		}
	})
}

func TestANewVersionBesideTheOld(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		l.fill(5, 30)
		l.catchUp(l.runner(balances()))
		r := l.runner(balances(), balances2())
		testapp.OK(t, r.Check(l.ctx))
		l.fill(5, 10)
		err := r.Promote(l.ctx, "balances", 2, 10)
		if late, ok := errors.AsType[*projection.LagError](err); !ok || late.Lag != 80 {
			t.Fatalf("promote before it is there: got %v, want a lag of 80", err)
		}
		if v, err := r.Active(l.ctx, db, "balances"); v != 1 || err != nil {
			t.Errorf("active version: got %d and %v, want 1", v, err)
		}
		l.catchUp(r)
		l.mustFold("")
		l.mustFold("2")
		if n := l.count("SELECT count(*) FROM applied2 WHERE mode = 'replay'"); n != 30 {
			t.Errorf("events the first version had applied, as a replay: got %d, want 30", n)
		}
		testapp.OK(t, r.Promote(l.ctx, "balances", 2, 0))
		if v, err := r.Active(l.ctx, db, "balances"); v != 2 || err != nil {
			t.Errorf("active version: got %d and %v, want 2", v, err)
		}
		old := l.table("")
		l.fill(5, 10)
		l.catchUp(r)
		l.mustFold("2")
		if got := l.table(""); fmt.Sprint(got) != fmt.Sprint(old) {
			t.Errorf("the retired version: got %v, want it as it was, %v", got, old)
		}
		if err := r.Promote(l.ctx, "balances", 1, 0); err == nil {
			t.Error("promote a retired version: got no error")
		}
		if err := r.Promote(l.ctx, "balances", 3, 0); !errors.Is(err, projection.ErrUnknown) {
			t.Errorf("promote what is not there: got %v, want ErrUnknown", err)
		}
	})
}

func TestAProjectionMustBeWhatItWas(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		testapp.OK(t, l.runner(balances()).Check(l.ctx))
		for name, change := range map[string]func(p *projection.Projection){
			"more types":  func(p *projection.Projection) { p.On = append(p.On, balances2().On[1]) },
			"categories":  func(p *projection.Projection) { p.Categories = []string{"account"} },
			"more shards": func(p *projection.Projection) { p.Shards = 2 },
		} {
			p := balances()
			change(&p)
			if err := l.runner(p).Run(l.ctx); err == nil || !strings.Contains(err.Error(), "raise the Version") {
				t.Errorf("%s under the same version: got %v, want an error", name, err)
			}
		}
		// Renamed is not changed.
		renamed := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[movedBefore]("account.moved")))
		again := &ledger{setup{types: renamed}.newApp(t, db)}
		p := balances()
		p.On = []projection.Handler{projection.On(func(context.Context, bun.Tx, movedBefore) error { return nil })}
		if err := again.runner(p).Check(l.ctx); err != nil {
			t.Errorf("a renamed event: got %v, want no error", err)
		}
	})
}

func TestProjectionMistakes(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.SQLite(t))
	on := balances().On
	for want, p := range map[string]projection.Projection{
		"Name":             {On: on},
		`Name "replay:x"`:  {Name: "replay:x", On: on},
		`Name "relay:x"`:   {Name: "relay:x", On: on},
		`Name "receive:x"`: {Name: "receive:x", On: on},
		"either On":        {Name: "p"},
		"Types must be":    {Name: "p", On: on, Types: []string{"account.moved"}},
		"unknown": {Name: "p",
			On: []projection.Handler{projection.On(func(context.Context, bun.Tx, secret) error { return nil })}},
		"given twice":   {Name: "p", On: append(on, on...)},
		"Shards 65":     {Name: "p", On: on, Shards: 65},
		"BatchSize -1":  {Name: "p", On: on, BatchSize: -1},
		"nil":           {Name: "p", On: []projection.Handler{projection.On[moved](nil)}},
		"projection.On": {Name: "p", On: []projection.Handler{{}}},
		"OnError 9":     {Name: "p", On: on, OnError: 9},
		"Version -1":    {Name: "p", On: on, Version: -1},
		"StartAtHead":   {Name: "p", On: on, StartAtHead: true, Reset: clearTables("")},
		"is eventlog_test.moved, not": {Name: "p",
			On: []projection.Handler{projection.On(func(context.Context, bun.Tx, movedToo) error { return nil })}},
	} {
		if _, err := projection.NewRunner(l.db, l.log, projection.RunnerConfig{}, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if _, err := projection.NewRunner(l.db, l.log, projection.RunnerConfig{Concurrency: 2,
		Chain: []bus.Middleware{nil}}); err == nil || !strings.Contains(err.Error(), "Concurrency 2") ||
		!strings.Contains(err.Error(), "Chain[0]") {
		t.Errorf("got %v, want both mistakes", err)
	}
	if _, err := projection.NewRunner(l.db, l.log, projection.RunnerConfig{}, balances(), balances()); err == nil {
		t.Error("a projection twice: got no error")
	}
	l.exec("DROP TABLE asyncmonolith_migrations")
	if err := l.runner(balances()).Run(l.ctx); !errors.Is(err, dberr.ErrSchema) {
		t.Errorf("without tables: got %v, want ErrSchemaOutdated", err)
	}
}

func TestInlineProjections(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		all := types(t)
		var refuse atomic.Bool
		p := balances()
		p.On = []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, e moved) error {
			if refuse.Load() {
				return errors.New("refused")
			}
			return apply(ctx, tx, "", e.Amount)
		})}
		inline, err := projection.NewInline(all, p)
		if err != nil {
			t.Fatal(err)
		}
		l := setup{types: all, log: eventlog.LogConfig{Inline: []eventlog.Inline{inline}}}.newLedger(t, db)
		err = l.inTx(func(ctx context.Context, tx bun.Tx) error {
			if _, err := l.log.Append(ctx, tx, "account-1", eventlog.AnyVersion, moved{5}, opened{"x"}); err != nil {
				return err
			}
			var amount int
			err := tx.NewRaw("SELECT amount FROM balances").Scan(ctx, &amount)
			if amount != 5 {
				t.Errorf("balance in the same transaction: got %d, want 5", amount)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		refuse.Store(true)
		if _, err := l.try("account-1", eventlog.AnyVersion, moved{1}); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("append that an inline projection refuses: got %v", err)
		}
		refuse.Store(false)
		l.exec("UPDATE balances SET amount = 77")
		var writers sync.WaitGroup
		for w := range 3 {
			writers.Go(func() {
				for n := range 20 {
					if _, err := l.try(fmt.Sprintf("account-%d", w), eventlog.AnyVersion, moved{n}); err != nil {
						t.Errorf("append: %v", err)
					}
				}
			})
		}
		for range 3 {
			if err := inline.Rebuild(l.ctx, db, l.log); err != nil {
				t.Error(err)
			}
		}
		writers.Wait()
		l.mustFold("")
	})
}

func TestReplayOfReactors(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var live, replayed, mails atomic.Int64
		count := func(ctx context.Context, e moved) error {
			if m, _ := bus.MessageFromContext(ctx); m.Event.Replay {
				replayed.Add(1)
			} else {
				live.Add(1)
			}
			return nil
		}
		a := newApp(t, db, bus.Consume("count", count), bus.Consume("other", func(context.Context, moved) error { mails.Add(1); return nil }))
		events := make([]bus.Payload, 250)
		for i := range events {
			events[i] = moved{i}
		}
		a.append("account-1", eventlog.AnyVersion, events...)
		a.append("account-1", eventlog.AnyVersion, opened{"x"})
		a.process()
		eventually(t, "all are live", func() bool { return live.Load() == 250 && mails.Load() == 250 })

		// Interrupted, resumed, and called again when it is over.
		replay := eventlog.Replay{Name: "first", Consumer: "count", Rate: 2000}
		ctx, cancel := context.WithTimeout(a.ctx, 30*time.Millisecond)
		first, err := a.log.Replay(ctx, db, replay)
		cancel()
		if err == nil && first == 250 {
			t.Log("the replay was quicker than its interruption")
		}
		second, err := a.log.Replay(a.ctx, db, replay)
		if err != nil || first+second > 250 { // fewer if the answer to a commit was lost
			t.Errorf("replay in two parts: got %d and %d and %v, want 250 in all", first, second, err)
		}
		if n, err := a.log.Replay(a.ctx, db, replay); n != 0 || err != nil {
			t.Errorf("replay again under its name: got %d and %v, want 0", n, err)
		}
		eventually(t, "all are replayed", func() bool { return replayed.Load() == 250 })
		if n, err := a.log.Replay(a.ctx, db, eventlog.Replay{Name: "part", Consumer: "count", After: 10, UpTo: 20}); n != 10 || err != nil {
			t.Errorf("replay of a part: got %d and %v, want 10", n, err)
		}
		eventually(t, "the part is replayed", func() bool { return replayed.Load() == 260 })
		if live.Load() != 250 || mails.Load() != 250 {
			t.Errorf("got %d live and %d of the other consumer, want 250 each", live.Load(), mails.Load())
		}
		replay.Consumer = "other"
		if _, err := a.log.Replay(a.ctx, db, replay); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("another replay under the name: got %v, want ErrInvalidOption", err)
		}
		backwards := eventlog.Replay{Name: "backwards", Consumer: "count", After: 20, UpTo: 10}
		if _, err := a.log.Replay(a.ctx, db, backwards); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("replay of what is nothing: got %v, want ErrInvalidOption", err)
		}
		replay.Name, replay.Consumer = "x", "nobody"
		if _, err := a.log.Replay(a.ctx, db, replay); !errors.Is(err, bus.ErrNoConsumer) {
			t.Errorf("replay for nobody: got %v, want ErrNoConsumer", err)
		}
	})
}

// TestReplayKeepsTheOrderOfStreams: what is replayed for an ordered consumer has its key, and runs in the order of its stream.
// Promise: key-order
func TestReplayKeepsTheOrderOfStreams(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var mu sync.Mutex
		var order []int
		var live atomic.Int64
		a := newApp(t, db, bus.Consume("count", func(ctx context.Context, e moved) error {
			if m, _ := bus.MessageFromContext(ctx); !m.Event.Replay {
				live.Add(1)
			} else {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, e.Amount)
			}
			return nil
		}, bus.Ordered(bus.BlockKey)))
		events := make([]bus.Payload, 60)
		for i := range events {
			events[i] = moved{i}
		}
		a.append("account-1", eventlog.AnyVersion, events...)
		a.process()
		eventually(t, "all are live", func() bool { return live.Load() == 60 })
		if n, err := a.log.Replay(a.ctx, db, eventlog.Replay{Name: "all", Consumer: "count", Rate: 2000}); n != 60 || err != nil {
			t.Fatalf("replay: got %d and %v, want 60", n, err)
		}
		eventually(t, "all are replayed", func() bool { mu.Lock(); defer mu.Unlock(); return len(order) == 60 })
		if !slices.IsSorted(order) {
			t.Errorf("order: got %v, want that of the stream", order)
		}
	})
}

// TestSkipOnReplayGuardsAProjection rebuilds, and has an effect not happen again.
func TestSkipOnReplayGuardsAProjection(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.SQLite(t))
	mails := 0
	p := projection.Projection{Name: "mail", Reset: func(context.Context, bun.Tx) error { return nil },
		On: []projection.Handler{projection.On(func(context.Context, bun.Tx, moved) error { mails++; return nil })}}
	chain := append(middleware.Default(middleware.Options{}), middleware.SkipOnReplay("mail"))
	r := testapp.Must[*projection.Runner](t)(projection.NewRunner(l.db, l.log, projection.RunnerConfig{Chain: chain}, p))
	l.fill(2, 5)
	l.catchUp(r)
	testapp.OK(t, r.Rebuild(l.ctx, "mail"))
	l.fill(2, 2)
	l.catchUp(r)
	if mails != 7 {
		t.Errorf("mails: got %d, want 7, none twice", mails)
	}
}

// TestErrorsSayWhichProjection has the mistakes that people make with names and
// versions, and the errors say what there is instead.
func TestErrorsSayWhichProjection(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	l := newLedger(t, db)
	appended := l.append("account-1", eventlog.NoStream, moved{1})
	r := l.runner(balances(), balances2())
	l.catchUp(r)
	testapp.OK(t, r.Promote(l.ctx, "balances", 2, 0))
	broken := projection.Projection{Name: "broken", On: []projection.Handler{
		projection.On(func(context.Context, bun.Tx, moved) error { return errors.New("cannot") })}}
	_, resumed := r.Resume(l.ctx, "balance", 1)
	ctx, cancel := context.WithTimeout(l.ctx, 10*time.Millisecond)
	defer cancel()
	_, zero := projection.NewRunner(db, l.log, projection.RunnerConfig{}, projection.Projection{Name: "p", On: []projection.Handler{{}}})
	_, none := projection.NewRunner(db, l.log, projection.RunnerConfig{},
		projection.Projection{Name: "p", On: []projection.Handler{projection.On[moved](nil)}})
	_, behind := l.runner(broken).CatchUp(l.ctx)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"promote what never ran":  {r.Promote(l.ctx, "balances", 3, 0), "version 3 has never run, only versions [1 2] have"},
		"promote what is retired": {r.Promote(l.ctx, "balances", 1, 0), "to go back, add a higher version to the runner"},
		"resume what never ran":   {resumed, `projection: resume "balance": version 1 has never run`},
		"rebuild a misspelt one":  {r.Rebuild(l.ctx, "balance"), `the runner was given ["balances"]`},
		"catch up":                {behind, `projection "broken" version 1 at position 1, stream "account-1" version 1: cannot`},
		"wait without a runner":   {l.runner(broken).WaitFor(ctx, "broken", appended), "the projection has not reached sequence 1"},
		"an empty Apply":          {zero, "On[0]: zero value: make the entry with projection.On"},
		"On of nothing":           {none, `On[0]: the function for event "account.moved" is nil`},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, c.err, c.want)
		}
	}
	if !errors.Is(resumed, projection.ErrUnknown) {
		t.Errorf("resume what never ran: got %v, want ErrUnknown", resumed)
	}
}

// TestWaitForMeansTheVersionToRead has a second version that is behind, as while it
// is built: nobody has to wait for it until it is promoted.
func TestWaitForMeansTheVersionToRead(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		both := l.runner(balances(), balances2())
		l.catchUp(both)
		appended := l.append("account-1", eventlog.NoStream, moved{1})
		l.catchUp(l.runner(balances()))
		ctx, cancel := context.WithTimeout(l.ctx, 2*time.Minute)
		defer cancel()
		if err := both.WaitFor(ctx, "balances", appended); err != nil {
			t.Errorf("wait while version 1 is the one to read: %v", err)
		}
		l.catchUp(both)
		testapp.OK(t, both.Promote(l.ctx, "balances", 2, 0))
		if err := both.WaitFor(ctx, "balances", appended); err != nil {
			t.Errorf("wait for the promoted version: %v", err)
		}
		short, cancel := context.WithTimeout(l.ctx, 20*time.Millisecond)
		defer cancel()
		if err := both.WaitFor(short, "balances", l.append("account-1", eventlog.AnyVersion, moved{1})); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("wait for the promoted version, which nobody runs: got %v, want that it is waited for", err)
		}
	})
}

// obsolete is moved in a form that gives up the older one.
type obsolete struct{}

func (obsolete) PayloadType() string { return "account.moved" }

func (obsolete) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(context.Context, []byte) ([]byte, error) { return nil, bus.Discard(errors.New("not wanted")) }}
}

// TestARebuildOfObsoleteEventsAppliesNothing: a Batch is never given none, which most statements cannot write.
func TestARebuildOfObsoleteEventsAppliesNothing(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		newApp(t, db).append("account-1", eventlog.NoStream, moved{1}, moved{2}, moved{3})
		all := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[obsolete]()))
		resets, calls := 0, 0
		inline, err := projection.NewInline(all, projection.Projection{
			Name: "p", Types: []string{"account.moved"}, BatchSize: 2, Reset: func(context.Context, bun.Tx) error { resets++; return nil },
			Batch: func(context.Context, bun.Tx, []eventlog.RecordedEvent) error { calls++; return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		a := setup{types: all}.newApp(t, db)
		if err := inline.Rebuild(a.ctx, db, a.log); err != nil || resets != 1 || calls != 0 {
			t.Errorf("got error %v, %d resets and %d calls, want one reset and no call", err, resets, calls)
		}
	})
}

// TestARebuildMayBeIdleForItsTimeout, in either kind of projection: appends wait for a rebuild whose process has stopped.
func TestARebuildMayBeIdleForItsTimeout(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.Postgres(t))
	var idle string
	p := balances()
	p.Timeout = 7 * time.Second
	p.Reset = func(ctx context.Context, tx bun.Tx) error {
		return tx.NewRaw("SHOW idle_in_transaction_session_timeout").Scan(ctx, &idle)
	}
	inline := testapp.Must[*projection.Inline](t)(projection.NewInline(types(t), p))
	for kind, rebuild := range map[string]func() error{
		"inline": func() error { return inline.Rebuild(l.ctx, l.db, l.log) },
		"runner": func() error { return l.runner(p).Rebuild(l.ctx, p.Name) },
	} {
		if err := rebuild(); err != nil || idle != "17s" {
			t.Errorf("%s: got idle time %s and error %v, want 17s: the timeout and 10 s", kind, idle, err)
		}
	}
}
