package eventlog_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// linked is an event that knows which one its writer had seen before.
type linked struct {
	Writer int   `json:"writer"`
	N      int   `json:"n"`
	After  int64 `json:"after"` // a sequence number
}

func (linked) PayloadType() string { return "linked" }

// reader follows the log as it grows, and judges what it is given.
type reader struct {
	after    int64
	places   map[int64]int64 // sequence to position
	versions map[string]int64
	mine     map[string]int // by writer and number
}

// follow reads what is new, as somebody would who keeps a cursor.
func (r *reader) follow(t testing.TB, a *app) {
	for e, err := range a.log.ReadLog(a.ctx, a.db, r.after, eventlog.Filter{}) {
		if err != nil {
			t.Errorf("read log: %v", err)
			return
		}
		if e.Position != r.after+1 {
			t.Errorf("after position %d: got %d, want the next", r.after, e.Position)
		}
		if e.Version != r.versions[e.Stream]+1 {
			t.Errorf("stream %s at position %d: got version %d after %d", e.Stream, e.Position, e.Version, r.versions[e.Stream])
		}
		if event, ok := e.Data.(linked); ok {
			if event.After != 0 && r.places[event.After] == 0 {
				t.Errorf("event at position %d: its cause, sequence %d, comes later", e.Position, event.After)
			}
			r.mine[fmt.Sprint(event.Writer, "/", event.N)]++
		}
		r.after, r.versions[e.Stream], r.places[e.Sequence] = e.Position, e.Version, e.Position
	}
}

func newReader() *reader {
	return &reader{places: map[int64]int64{}, versions: map[string]int64{}, mine: map[string]int{}}
}

// TestManyWritersLoseAndReorderNoEvent has writers append to a few streams, linger, and roll
// back, while several processes number and a reader follows: nothing is lost,
// doubled, out of order in its stream, or before its cause.
// Promise: log-read
func TestManyWritersLoseAndReorderNoEvent(t *testing.T) {
	t.Parallel()
	const writers, each, streams, numberers = 8, 60, 4, 3
	a := setup{types: types(t, eventlog.Event[linked]())}.newApp(t, testdb.Postgres(t))
	var stop atomic.Bool
	var working, numbering sync.WaitGroup
	for range numberers {
		numbering.Go(func() {
			for !stop.Load() {
				if _, err := a.log.AssignPositions(a.ctx, a.db); err != nil {
					t.Errorf("number: %v", err)
				}
			}
		})
	}
	follower := newReader()
	numbering.Go(func() {
		for !stop.Load() {
			follower.follow(t, a)
		}
	})
	committed := make([]map[int]bool, writers)
	for w := range writers {
		committed[w] = map[int]bool{}
		working.Go(func() { a.write(t, w, each, streams, committed[w]) })
	}
	working.Wait()
	stop.Store(true)
	numbering.Wait()
	a.number()
	follower.follow(t, a)
	total := 0
	for w, numbers := range committed {
		for n := range each {
			total += map[bool]int{true: 1}[numbers[n]]
			if got := follower.mine[fmt.Sprint(w, "/", n)]; (got == 1) != numbers[n] || got > 1 {
				t.Errorf("event %d of writer %d, committed %t: got it %d times", n, w, numbers[n], got)
			}
		}
	}
	if follower.after != int64(total) {
		t.Errorf("last position: got %d, want %d, the number of events", follower.after, total)
	}
}

var errRollback = errors.New("roll back")

// write appends events, a third of which are rolled back, each in a transaction
// that has written something else before.
func (a *app) write(t testing.TB, writer, events, streams int, committed map[int]bool) {
	random := rand.New(rand.NewPCG(1, uint64(writer)))
	var seen int64
	for n := range events {
		err := a.inTx(func(ctx context.Context, tx bun.Tx) error {
			// The transaction has its id long before it appends.
			if _, err := tx.NewRaw("SELECT pg_current_xact_id(), pg_sleep(?)", random.Float64()/500).Exec(ctx); err != nil {
				return err
			}
			stream := fmt.Sprintf("s-%d", random.IntN(streams))
			appended, err := a.log.Append(ctx, tx, stream, eventlog.AnyVersion, linked{writer, n, seen})
			if err != nil {
				return err
			}
			if _, err := tx.NewRaw("SELECT pg_sleep(?)", random.Float64()/200).Exec(ctx); err != nil {
				return err
			}
			if random.IntN(3) == 0 {
				return errRollback
			}
			seen = appended.Sequence
			return nil
		})
		switch {
		case err == nil:
			committed[n] = true
		case !errors.Is(err, errRollback):
			t.Errorf("writer %d: %v", writer, err)
		}
	}
}

// TestAnOldTransactionDoesNotInvertItsStream is the scenario in which an order by
// transaction ids has version 2 before version 1.
func TestAnOldTransactionDoesNotInvertItsStream(t *testing.T) {
	t.Parallel()
	a := newApp(t, testdb.Postgres(t))
	old := testapp.Must[bun.Tx](t)(a.db.BeginTx(a.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}))
	testapp.OK(t, testapp.Second(old.NewRaw("SELECT pg_current_xact_id()").Exec(a.ctx)))
	a.append("account-1", eventlog.NoStream, moved{1})
	testapp.OK(t, testapp.Second(a.log.Append(a.ctx, old, "account-1", 1, moved{2})))
	testapp.OK(t, old.Commit())
	events := a.all(eventlog.Filter{})
	if len(events) != 2 || events[0].Version != 1 || events[1].Version != 2 {
		t.Errorf("log: got %+v, want versions 1 and 2", events)
	}
}

// TestAnIdleWriterDelaysOnlyItself has a transaction stay open after its append.
// Others are numbered past it; then it commits, its stream grows, and its events
// come late but in their order, for a reader that has gone on.
// Promise: log-read
func TestAnIdleWriterDelaysOnlyItself(t *testing.T) {
	t.Parallel()
	a := newApp(t, testdb.Postgres(t))
	idle := testapp.Must[bun.Tx](t)(a.db.BeginTx(a.ctx, nil))
	testapp.OK(t, testapp.Second(a.log.Append(a.ctx, idle, "account-1", eventlog.NoStream, moved{1})))
	follower := newReader()
	for i := range 5 {
		a.append("account-2", eventlog.ExpectedVersion(i), moved{i})
		if n := a.number(); n != 1 {
			t.Errorf("numbered beside an idle writer: got %d, want 1", n)
		}
		follower.follow(t, a)
	}
	if follower.after != 5 {
		t.Errorf("position while one writer is idle: got %d, want 5", follower.after)
	}
	testapp.OK(t, idle.Commit())
	a.append("account-1", 1, moved{2})
	a.number()
	follower.follow(t, a)
	if follower.after != 7 || follower.versions["account-1"] != 2 {
		t.Errorf("after the commit: got position %d and version %d, want 7 and 2", follower.after, follower.versions["account-1"])
	}
}

// TestManyWritersOnSQLite has writers of several connections share the log.
func TestManyWritersOnSQLite(t *testing.T) {
	t.Parallel()
	a := newApp(t, testdb.SQLite(t))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := range 25 {
				err := a.inTx(func(ctx context.Context, tx bun.Tx) error {
					if _, err := a.log.Append(ctx, tx, fmt.Sprintf("s-%d", n%3), eventlog.AnyVersion, moved{w}); err != nil {
						return err
					}
					if n%5 == 0 {
						return errRollback
					}
					return nil
				})
				if err != nil && !errors.Is(err, errRollback) {
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	wg.Wait()
	follower := newReader()
	follower.follow(t, a)
	if follower.after != 80 {
		t.Errorf("events: got %d, want 80, without gaps", follower.after)
	}
}

// deposit is a message whose consumer decides on the one account that all meet at.
type deposit struct{}

func (deposit) PayloadType() string { return "deposit" }

// TestAHotStreamCountsNoAttempts has two processors decide on one stream, message by
// message: whoever was second is repeated, which is no failed attempt.
// Promise: conflict
func TestAHotStreamCountsNoAttempts(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		const messages = 120
		var a *app
		d := accounts(100)
		patience := 30 * time.Second // which a machine that is busy with other tests needs to wait for its turn
		a = newApp(t, db, outbox.ConsumeTx("decide", func(ctx context.Context, tx bun.Tx, _ deposit) error {
			_, _, err := decider.Handle(ctx, a.log, tx, d, "hot", 1)
			return err
		}, bus.Timeout(patience)))
		// A second run that counts would be the last: process has MaxAttempts 2.
		a.exec("CREATE TABLE counted (errors text)")
		if a.isPostgres() {
			a.exec(`CREATE FUNCTION count_attempt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO counted VALUES (NEW.errors); RETURN NEW; END $$`)
			a.exec(`CREATE TRIGGER count_attempt AFTER UPDATE ON consumer_messages FOR EACH ROW WHEN (NEW.attempts > OLD.attempts) EXECUTE FUNCTION count_attempt()`)
		} else {
			a.exec(`CREATE TRIGGER count_attempt AFTER UPDATE ON consumer_messages WHEN NEW.attempts > OLD.attempts BEGIN INSERT INTO counted VALUES (NEW.errors); END`)
		}
		items := make([]outbox.Item, messages)
		for i := range items {
			items[i].Payload = deposit{}
		}
		testapp.OK(t, testapp.Second(a.producer.ProduceMany(a.ctx, db, items...)))
		a.process()
		if a.isPostgres() { // one more at the one write lock of SQLite only waits
			a.process()
		}
		eventually(t, "all have decided", func() bool { return a.count("SELECT count(*) FROM consumer_messages") == 0 })
		var counted []string
		if err := db.NewRaw("SELECT errors FROM counted").Scan(t.Context(), &counted); err != nil || len(counted) > 0 {
			t.Errorf("attempts that counted: got %d, error %v, want none: %s", len(counted), err, counted)
		}
		if n := a.count("SELECT count(*) FROM poisoned_messages"); n != 0 {
			t.Errorf("poisoned: got %d, want none", n)
		}
		state, _, err := decider.Load(a.ctx, a.log, db, d, "hot")
		if err != nil || state.Balance != messages {
			t.Errorf("state: got %+v and %v, want a balance of %d", state, err, messages)
		}
	})
}

// TestAnOpenSnapshotDelaysNothing has a reader keep its snapshot while thousands of
// events come, and a writer commit after others of later numbers: nothing is
// skipped or inverted, and numbering goes on. What it has to pass over, because the
// snapshot might still see it, makes it slower, but not by much.
func TestAnOpenSnapshotDelaysNothing(t *testing.T) {
	t.Parallel()
	const rounds, each = 10, 1000
	a := newApp(t, testdb.Postgres(t))
	a.append("account-0", eventlog.NoStream, moved{0})
	snapshot, err := a.db.BeginTx(a.ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Rollback() //nolint:errcheck // it has only read
	testapp.OK(t, testapp.Second(snapshot.NewRaw("SELECT count(*) FROM events").Exec(a.ctx)))
	straggler, err := a.db.BeginTx(a.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	testapp.OK(t, testapp.Second(a.log.Append(a.ctx, straggler, "account-late", eventlog.NoStream, moved{1})))
	events := make([]bus.Payload, each)
	for i := range events {
		events[i] = moved{i}
	}
	follower := newReader()
	var ticks, pages []time.Duration
	for round := range rounds {
		a.append(fmt.Sprintf("account-%d", round%3+1), eventlog.AnyVersion, events...)
		begun := time.Now()
		if n := a.number(); n < each {
			t.Errorf("numbered beside a snapshot: got %d, want %d", n, each)
		}
		pages = append(pages, time.Since(begun))
		a.append("account-0", eventlog.AnyVersion, moved{round})
		begun = time.Now()
		a.number()
		ticks = append(ticks, time.Since(begun))
		follower.follow(t, a)
	}
	testapp.OK(t, straggler.Commit())
	a.append("account-late", 1, moved{2}, moved{3})
	a.number()
	follower.follow(t, a)
	if want := int64(1 + rounds*(each+1) + 3); follower.after != want || follower.versions["account-late"] != 3 {
		t.Errorf("after the straggler: got position %d and its version %d, want %d and 3", follower.after,
			follower.versions["account-late"], want)
	}
	slices.Sort(ticks)
	slices.Sort(pages)
	t.Logf("numbering one event beside a snapshot older than %d: median %s, worst %s", rounds*each, ticks[rounds/2], ticks[rounds-1])
	if median, page := ticks[rounds/2], pages[rounds/2]; median > page {
		t.Errorf("numbering one event beside a snapshot: got a median of %s, want it far below the %s of %d events", median, page, each)
	}
}
