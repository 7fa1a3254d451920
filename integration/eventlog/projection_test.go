package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// ledger is an app with a table of balances, and of what was applied in which order.
type ledger struct{ *app }

func newLedger(t testing.TB, db *bun.DB) *ledger {
	return setup{}.newLedger(t, db)
}

func (s setup) newLedger(t testing.TB, db *bun.DB) *ledger {
	l := &ledger{s.newApp(t, db)}
	for _, suffix := range []string{"", "2"} {
		l.exec("CREATE TABLE balances" + suffix + " (stream text PRIMARY KEY, amount int NOT NULL, version int NOT NULL)")
		l.exec("CREATE TABLE applied" + suffix + " (stream text, version int, mode text)")
	}
	return l
}

// apply adds up, and refuses what does not follow on what it has.
func apply(ctx context.Context, tx bun.Tx, suffix string, amount int) error {
	m, _ := bus.MessageFromContext(ctx)
	if _, err := tx.NewRaw("INSERT INTO applied"+suffix+" VALUES (?, ?, ?)", m.Event.Stream, m.Event.Version,
		access.Mode(m)).Exec(ctx); err != nil {
		return err
	}
	_, err := tx.NewRaw("INSERT INTO balances"+suffix+
		" AS b VALUES (?, ?, ?) ON CONFLICT (stream) DO UPDATE SET amount = b.amount + EXCLUDED.amount, version = EXCLUDED.version",
		m.Event.Stream, amount, m.Event.Version).Exec(ctx)
	return err
}

func clearTables(suffix string) func(ctx context.Context, tx bun.Tx) error {
	return func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewRaw("DELETE FROM balances" + suffix).Exec(ctx)
		return err
	}
}

func balances() projection.Projection {
	return projection.Projection{
		Name: "balances", Reset: clearTables(""), AttemptDelay: time.Millisecond,
		On: []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, e moved) error { return apply(ctx, tx, "", e.Amount) })},
	}
}

// balances2 is their second version, beside the first.
func balances2() projection.Projection {
	p := balances()
	p.Version, p.Reset = 2, clearTables("2")
	p.On = []projection.Handler{
		projection.On(func(ctx context.Context, tx bun.Tx, e moved) error { return apply(ctx, tx, "2", e.Amount) }),
		projection.On(func(context.Context, bun.Tx, opened) error { return nil }),
	}
	return p
}

func (l *ledger) runner(projections ...projection.Projection) *projection.Runner {
	l.Helper()
	r, err := projection.NewRunner(l.db, l.log, projection.RunnerConfig{PollInterval: 20 * time.Millisecond}, projections...)
	if err != nil {
		l.Fatalf("runner: %v", err)
	}
	return r
}

func (l *ledger) catchUp(r *projection.Runner) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	if _, err := r.CatchUp(ctx); err != nil {
		l.Fatalf("catch up: %v", err)
	}
}

// fold adds up the log.
func (l *ledger) fold() map[string]int {
	sums := map[string]int{}
	for _, e := range l.all(eventlog.Filter{Types: []string{"account.moved"}}) {
		sums[e.Stream] += e.Data.(moved).Amount
	}
	return sums
}

func (l *ledger) table(suffix string) map[string]int {
	l.Helper()
	var rows []struct {
		Stream string
		Amount int
	}
	testapp.OK(l, l.db.NewRaw("SELECT stream, amount FROM balances"+suffix).Scan(l.ctx, &rows))
	sums := map[string]int{}
	for _, row := range rows {
		sums[row.Stream] = row.Amount
	}
	return sums
}

// mustFold compares a table with the fold of the log, and the order in which
// events were applied with that of their streams.
func (l *ledger) mustFold(suffix string) {
	l.Helper()
	if got, want := l.table(suffix), l.fold(); !reflect.DeepEqual(got, want) {
		l.Errorf("balances%s: got %v, want the fold of the log, %v", suffix, got, want)
	}
}

func (l *ledger) fill(streams, events int) {
	l.Helper()
	for i := range events {
		l.append(fmt.Sprintf("account-%d", i%streams), eventlog.AnyVersion, moved{i}, opened{"x"})
	}
}

func TestAProjectionIsTheFoldOfTheLog(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		for _, shards := range []int{1, 5} {
			t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
				l := newLedger(t, db)
				p := balances()
				p.Name, p.Shards, p.BatchSize = fmt.Sprint("balances", shards), shards, 7
				r := l.runner(p)
				l.fill(11, 100)
				l.catchUp(r)
				l.mustFold("")
				l.fill(3, 20)
				l.catchUp(r)
				l.catchUp(r) // which has nothing to do
				l.mustFold("")
				if n := l.count("SELECT count(*) FROM applied"); n != 120 {
					t.Errorf("events applied: got %d, want 120", n)
				}
				stats, err := r.Stats(l.ctx)
				if err != nil || len(stats) != 1 || stats[0].Lag != 0 {
					t.Errorf("readers: got %+v and %v, want no lag", stats, err)
				}
				for _, suffix := range []string{"", "2"} {
					l.exec("DROP TABLE balances" + suffix)
					l.exec("DROP TABLE applied" + suffix)
				}
				l.exec("DELETE FROM events")
				l.exec("DELETE FROM event_streams")
				if !l.isPostgres() {
					l.exec("DELETE FROM sqlite_sequence WHERE name = 'events'")
				} else {
					l.exec("UPDATE event_head SET position = 0")
				}
			})
		}
	})
}

func TestAProjectionInItsOwnTransaction(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		r := l.runner(balances())
		running(t, "runner", r.Run)
		for i := range 20 {
			appended := l.append("account-1", eventlog.ExpectedVersion(i), moved{1})
			ctx, cancel := context.WithTimeout(l.ctx, 2*time.Minute)
			if err := r.WaitFor(ctx, "balances", appended); err != nil {
				t.Fatalf("wait: %v", err)
			}
			cancel()
			if got := l.table("")["account-1"]; got != i+1 {
				t.Fatalf("own write: got balance %d, want %d", got, i+1)
			}
		}
		if err := r.Run(l.ctx); !errors.Is(err, bus.ErrRunning) {
			t.Errorf("a second Run: got %v, want ErrRunning", err)
		}
		if err := r.WaitFor(l.ctx, "nonsense", eventlog.Appended{}); !errors.Is(err, projection.ErrUnknown) {
			t.Errorf("wait for an unknown projection: got %v, want ErrUnknown", err)
		}
		never, cancel := context.WithTimeoutCause(l.ctx, 20*time.Millisecond, errors.New("enough"))
		defer cancel()
		if err := r.WaitFor(never, "balances", eventlog.Appended{Sequence: 1 << 40}); err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("wait for what never comes: got %v, want the cause", err)
		}
	})
}

// TestPoisonPolicies has one event that cannot be applied in the middle of its
// stream, and another stream beside it.
func TestPoisonPolicies(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		for _, c := range []struct {
			name    string
			policy  projection.OnError
			batch   bool
			applied []int // of the stream with the bad event
			others  int
			parked  int
		}{
			{"halt", projection.Halt, false, []int{1, 2}, 1, 0},
			{"park", projection.Park, false, []int{1, 2, 4, 5}, 3, 1},
			{"park the stream", projection.ParkStream, false, []int{1, 2}, 3, 3},
			{"park, in batches", projection.Park, true, []int{1, 2, 4, 5}, 3, 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				l := setup{tables: bus.Tables{Prefix: strings.NewReplacer(" ", "_", ",", "").Replace(c.name) + "_"}}.newApp(t, db)
				l.exec("CREATE TABLE IF NOT EXISTS seen (test text, stream text, version int)")
				var broken atomic.Bool
				broken.Store(true)
				one := func(ctx context.Context, tx bun.Tx, stream string, version int64, amount int) error {
					if _, err := tx.NewRaw("INSERT INTO seen VALUES (?, ?, ?)", c.name, stream, version).Exec(ctx); err != nil {
						return err
					}
					if amount < 0 && broken.Load() {
						return errors.New("a negative amount")
					}
					return nil
				}
				p := projection.Projection{Name: "p", OnError: c.policy, MaxAttempts: 2, AttemptDelay: time.Millisecond}
				ofMoves(&p, c.batch, one)
				for v := range 5 {
					l.append("account-bad", eventlog.ExpectedVersion(v), moved{map[bool]int{true: -1, false: 1}[v == 2]})
					if v%2 == 0 {
						l.append("account-good", eventlog.AnyVersion, moved{1})
					}
				}
				r, err := projection.NewRunner(db, l.log, projection.RunnerConfig{PollInterval: 5 * time.Millisecond}, p)
				if err != nil {
					t.Fatal(err)
				}
				testapp.OK(t, r.Check(l.ctx))
				l.number()
				stop := running(t, "runner", r.Run)
				stats := func() projection.Stats {
					all, err := r.Stats(l.ctx)
					if err != nil || len(all) != 1 {
						return projection.Stats{Lag: -1}
					}
					return all[0]
				}
				eventually(t, "halted, or at the end", func() bool { s := stats(); return s.Halted == 1 || s.Lag == 0 })
				seen := func(stream string) (versions []int) {
					if err := db.NewRaw("SELECT version FROM seen WHERE test = ? AND stream = ? ORDER BY version", c.name, stream).Scan(l.ctx,
						&versions); err != nil {
						t.Fatal(err)
					}
					return versions
				}
				if got := seen("account-bad"); !reflect.DeepEqual(got, c.applied) {
					t.Errorf("versions applied of the bad stream: got %v, want %v", got, c.applied)
				}
				if got := len(seen("account-good")); got != c.others || stats().Parked != c.parked {
					t.Errorf("got %d of the good stream and %d parked, want %d and %d", got, stats().Parked, c.others, c.parked)
				}
				if c.policy == projection.Halt {
					if err := r.WaitFor(l.ctx, "p", eventlog.Appended{Sequence: int64(l.count("SELECT MAX(sequence) FROM halt_events"))}); !errors.Is(err,
						projection.ErrHalted) {
						t.Errorf("wait for a halted projection: got %v, want ErrHalted", err)
					}
				}
				broken.Store(false)
				testapp.OK(t, testapp.Second(r.Resume(l.ctx, "p", 1)))
				eventually(t, "at the end", func() bool { return stats().Lag == 0 })
				stop()
				if n, err := r.RetryParked(l.ctx, "p"); n != c.parked || err != nil {
					t.Errorf("retry parked: got %d and %v, want %d", n, err, c.parked)
				}
				if got := seen("account-bad"); !reflect.DeepEqual(got, []int{1, 2, 3, 4, 5}) || len(seen("account-good")) != 3 {
					t.Errorf("in the end: got %v, want every version once", got)
				}
			})
		}
	})
}

// TestTheChainDecidesForProjectionsToo has a layer snooze, discard and panic.
func TestTheChainDecidesForProjectionsToo(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.SQLite(t))
	runs := map[int]int{}
	p := balances()
	p.OnError, p.MaxAttempts = projection.Park, 3
	p.On = []projection.Handler{projection.On(func(ctx context.Context, _ bun.Tx, e moved) error {
		m, _ := bus.MessageFromContext(ctx)
		switch runs[e.Amount]++; {
		case e.Amount == 1:
			return bus.Discard(errors.New("not wanted"))
		case e.Amount == 2 && runs[2] < 4:
			return bus.Snooze(time.Millisecond)
		case e.Amount == 3:
			panic("three")
		case e.Amount == 4:
			return bus.Permanent(errors.New("never"))
		case e.Amount == 5 && m.Attempt < 3:
			return errors.New("later")
		}
		return nil
	})}
	r := l.runner(p)
	for i := range 7 {
		l.append("account-1", eventlog.AnyVersion, moved{i})
	}
	running(t, "runner", r.Run)
	eventually(t, "everything is applied or parked", func() bool {
		stats, err := r.Stats(l.ctx)
		return err == nil && stats[0].Lag == 0 && stats[0].Parked == 2
	})
	parked, err := r.Parked(l.ctx, "balances", 10)
	if err != nil || len(parked) != 2 || !strings.Contains(parked[0].Reason, "three") || !strings.Contains(parked[1].Reason, "never") {
		t.Errorf("parked: got %+v and %v, want three and four", parked, err)
	}
}

// ofMoves has a projection apply moves, one by one or in batches.
func ofMoves(p *projection.Projection, batch bool,
	one func(ctx context.Context, tx bun.Tx, stream string, version int64, amount int) error) {
	if !batch {
		p.On = []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, e moved) error {
			m, _ := bus.MessageFromContext(ctx)
			return one(ctx, tx, m.Event.Stream, m.Event.Version, e.Amount)
		})}
		return
	}
	p.Types = []string{"account.moved"}
	p.Batch = func(ctx context.Context, tx bun.Tx, events []eventlog.RecordedEvent) error {
		for _, e := range events {
			if err := one(ctx, tx, e.Stream, e.Version, e.Data.(moved).Amount); err != nil {
				return err
			}
		}
		return nil
	}
}
