package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// content is what the tables of the log have in them, as text.
func (a *app) content() string {
	a.Helper()
	var all strings.Builder
	for _, table := range []string{"events", "event_streams", "event_snapshots", "event_parked", "consumer_messages"} {
		var rows []map[string]any
		if err := a.db.NewRaw("SELECT * FROM "+table+" ORDER BY 1, 2").Scan(a.ctx, &rows); err != nil {
			a.Fatalf("read %s: %v", table, err)
		}
		for _, row := range rows {
			fmt.Fprintf(&all, "%s %v\n", table, row)
		}
	}
	return all.String()
}

// refuse has the database refuse to write to a table.
func (a *app) refuse(operation, table string) {
	a.Helper()
	if a.isPostgres() {
		a.exec(`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger AS 'BEGIN RAISE EXCEPTION ''refused by the test''; END' LANGUAGE plpgsql`)
		a.exec(fmt.Sprintf(`CREATE TRIGGER refuse BEFORE %s ON %s FOR EACH ROW EXECUTE FUNCTION refuse()`, operation, table))
		return
	}
	a.exec(fmt.Sprintf(`CREATE TRIGGER refuse BEFORE %s ON %s BEGIN SELECT RAISE(ABORT, 'refused by the test'); END`, operation, table))
}

var errRefused = errors.New("the balance would be negative")

// An append that fails leaves nothing of itself, and the transaction goes on.
// Promise: call-undone
func TestAFailedAppendIsRolledBack(t *testing.T) {
	cases := []struct {
		name string
		call func(a *app, ctx context.Context, tx bun.Tx) error
		want func(error) bool
		// inTheWay is what the database refuses.
		inTheWay [2]string
	}{
		{name: "a conflict of the second stream", call: func(a *app, ctx context.Context, tx bun.Tx) error {
			_, err := a.log.AppendAll(ctx, tx, eventlog.Write{Stream: "account-a", Expected: 1, Events: []bus.Payload{moved{1}}},
				eventlog.Write{Stream: "account-b", Expected: 5, Events: []bus.Payload{moved{1}}})
			return err
		}, want: isConflict},
		{name: "a tombstone after a new stream", call: func(a *app, ctx context.Context, tx bun.Tx) error {
			_, err := a.log.AppendAll(ctx, tx, eventlog.Write{Stream: "account-0", Expected: eventlog.AnyVersion, Events: []bus.Payload{moved{1}}},
				eventlog.Write{Stream: "account-dead", Expected: eventlog.AnyVersion, Events: []bus.Payload{moved{1}}})
			return err
		}, want: func(err error) bool { return errors.Is(err, eventlog.ErrTombstoned) }},
		{name: "an inline projection that refuses", call: func(a *app, ctx context.Context, tx bun.Tx) error {
			_, err := a.log.Append(ctx, tx, "account-a", eventlog.AnyVersion, moved{-1})
			return err
		}, want: func(err error) bool { return errors.Is(err, errRefused) }},
		{name: "a tombstone that fails", call: func(a *app, ctx context.Context, tx bun.Tx) error {
			return a.log.Tombstone(ctx, tx, "account-a")
		}, inTheWay: [2]string{"DELETE", "event_snapshots"}},
		{name: "a message that cannot be written", call: func(a *app, ctx context.Context, tx bun.Tx) error {
			_, err := a.log.Append(ctx, tx, "account-a", eventlog.AnyVersion, moved{1})
			return err
		}, inTheWay: [2]string{"INSERT", "consumer_messages"}},
		{name: "a snapshot that cannot be written", call: func(a *app, ctx context.Context, tx bun.Tx) error {
			_, _, err := decider.Handle(ctx, a.log, tx, everyEvent(), "a", 1)
			return err
		}, inTheWay: [2]string{"INSERT", "event_snapshots"}},
		{name: "a state that cannot be encoded", call: func(a *app, ctx context.Context, tx bun.Tx) error {
			d := decider.Decider[chan int, int, moved]{Category: "account", Snapshots: decider.Snapshots{Every: 1},
				Evolve: func(state chan int, _ moved) chan int { return state },
				Decide: func(context.Context, chan int, int) ([]moved, error) { return []moved{{1}}, nil }}
			_, _, err := decider.Handle(ctx, a.log, tx, d, "new", 1)
			return err
		}},
	}
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				var fresh *bun.DB
				if db.Dialect().Name().String() == "pg" {
					fresh = testdb.Postgres(t)
				} else {
					fresh = testdb.SQLite(t)
				}
				a := withInline(t, fresh)
				if c.inTheWay[1] != "" {
					a.refuse(c.inTheWay[0], c.inTheWay[1])
				}
				before := a.content()
				err := a.inTx(func(ctx context.Context, tx bun.Tx) error {
					if _, err := tx.NewRaw("INSERT INTO notes VALUES (1)").Exec(ctx); err != nil {
						return err
					}
					if err := c.call(a, ctx, tx); err == nil || c.want != nil && !c.want(err) {
						t.Errorf("the call: got %v", err)
					}
					_, err := tx.NewRaw("DELETE FROM notes").Exec(ctx) // the application notes it elsewhere
					return err
				})
				if err != nil {
					t.Fatalf("go on after the error, and commit: %v", err)
				}
				if after := a.content(); after != before {
					t.Errorf("the tables after an append that failed:\n%s\nwant what they were:\n%s", after, before)
				}
			})
		}
	})
}

// everyEvent is a decider that keeps a snapshot of every version.
func everyEvent() decider.Decider[int, int, bus.Payload] {
	return decider.Decider[int, int, bus.Payload]{Category: "account", Snapshots: decider.Snapshots{Every: 1},
		Evolve: func(balance int, event bus.Payload) int {
			if m, ok := event.(moved); ok {
				balance += m.Amount
			}
			return balance
		},
		Decide: func(_ context.Context, _, amount int) ([]bus.Payload, error) {
			return []bus.Payload{moved{amount}}, nil
		}}
}

// withInline is an application with an inline projection that refuses what is negative,
// two streams and a tombstone.
func withInline(t *testing.T, db *bun.DB) *app {
	all := types(t)
	inline, err := projection.NewInline(all, projection.Projection{Name: "balance", On: []projection.Handler{
		projection.On(func(_ context.Context, _ bun.Tx, e moved) error {
			if e.Amount < 0 {
				return errRefused
			}
			return nil
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := setup{types: all, log: eventlog.LogConfig{Inline: []eventlog.Inline{inline}}}.newApp(t, db,
		bus.Consume("c", func(context.Context, moved) error { return nil }))
	a.exec("CREATE TABLE notes (note int)")
	for _, stream := range []string{"account-a", "account-b", "account-dead"} {
		a.append(stream, eventlog.NoStream, opened{"ann"})
	}
	err = a.inTx(func(ctx context.Context, tx bun.Tx) error {
		if err := logaccess.SaveSnapshot(ctx, a.log, tx, "account-a", "some", store.Snapshot{Version: 1, State: []byte("{}")}); err != nil {
			return err
		}
		return a.log.Tombstone(ctx, tx, "account-dead")
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func isConflict(err error) bool {
	_, ok := errors.AsType[*eventlog.ConflictError](err)
	return ok
}

// A context that ends between two statements of an append must not leave the first one's
// work in a transaction that goes on with another context.
// Promise: call-undone
func TestAnAppendThatIsCutShortCannotBeCommitted(t *testing.T) {
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, bus.Consume("c", func(context.Context, opened) error { return nil }))
		for _, table := range []string{`"event_streams"`, `INSERT INTO "events"`} {
			ctx, cancel := context.WithCancel(a.ctx)
			tx := testapp.Must[bun.Tx](t)(db.WithQueryHook(afterQuery{table, cancel}).BeginTx(a.ctx, nil))
			if _, err := a.log.Append(ctx, tx, "account-a", eventlog.NoStream, opened{"ann"}); !errors.Is(err, context.Canceled) {
				t.Fatalf("append whose context ended after the write to %s: got %v", table, err)
			}
			_ = tx.Commit() // an error on PostgreSQL
			if n := a.count("SELECT (SELECT count(*) FROM event_streams) + (SELECT count(*) FROM events) + (SELECT count(*) FROM consumer_messages)"); n != 0 {
				t.Errorf("after an append that was cut short after %s: got %d rows, want none", table, n)
			}
		}
	})
}

// afterQuery calls a function after each statement with some text in it.
type afterQuery struct {
	text string
	call func()
}

func (h afterQuery) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (h afterQuery) AfterQuery(_ context.Context, e *bun.QueryEvent) {
	if strings.Contains(e.Query, h.text) {
		h.call()
	}
}

// Whoever lost a conflict reads under the stream's lock, and cannot lose it again.
func TestARepeatedDecisionLosesNoConflict(t *testing.T) {
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		const writers, each = 4, 25
		a := newApp(t, db)
		var again atomic.Int64
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for range each {
					ctx := a.ctx
					for {
						err := a.log.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
							_, _, err := decider.Handle(ctx, a.log, tx, everyEvent(), "hot", 1)
							return err
						})
						if err == nil {
							break
						}
						if !isConflict(err) {
							t.Errorf("decide: %v", err)
							return
						}
						if txn.Repeated(ctx) && a.isPostgres() {
							again.Add(1)
						}
						ctx = txn.WithRepeat(a.ctx)
					}
				}
			})
		}
		all.Wait()
		if n := len(a.stream("account-hot")); n != writers*each {
			t.Errorf("events: got %d, want %d", n, writers*each)
		}
		// The first event of a stream is the only one without a row to wait for.
		if n := again.Load(); n > writers {
			t.Errorf("repeated decisions that lost again: got %d, want none", n)
		}
	})
}

// Names that are no text are the caller's mistake, found before anything is sent.
func TestNamesThatAreNoText(t *testing.T) {
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db)
		runner := testapp.Must[*projection.Runner](t)(projection.NewRunner(db, a.log, projection.RunnerConfig{}))
		var sent atomic.Int64
		hooked := db.WithQueryHook(afterQuery{"", func() { sent.Add(1) }})
		for _, bad := range []string{"account-1\x002", "account-\xff"} {
			calls := map[string]func(ctx context.Context, tx bun.Tx) error{
				"ReadStream": func(ctx context.Context, tx bun.Tx) (err error) {
					for _, err = range a.log.ReadStream(ctx, tx, bad, 0) {
					}
					return err
				},
				"FoldStream": func(ctx context.Context, tx bun.Tx) error {
					_, err := a.log.FoldStream(ctx, tx, bad, 0, func(eventlog.RecordedEvent) error { return nil })
					return err
				},
				"ReadLog": func(ctx context.Context, tx bun.Tx) (err error) {
					for _, err = range a.log.ReadLog(ctx, tx, 0, eventlog.Filter{Categories: []string{strings.ReplaceAll(bad, "-", "")}}) {
					}
					return err
				},
				"Append": func(ctx context.Context, tx bun.Tx) error {
					_, err := a.log.Append(ctx, tx, bad, eventlog.AnyVersion, moved{1})
					return err
				},
				"Tombstone": func(ctx context.Context, tx bun.Tx) error { return a.log.Tombstone(ctx, tx, bad) },
				"Snapshot": func(ctx context.Context, tx bun.Tx) error {
					_, _, err := logaccess.Snapshot(ctx, a.log, tx, bad, "kind")
					return err
				},
				"Snapshot of a kind": func(ctx context.Context, tx bun.Tx) error {
					_, _, err := logaccess.Snapshot(ctx, a.log, tx, "account-1", bad)
					return err
				},
				"SaveSnapshot": func(ctx context.Context, tx bun.Tx) error {
					return logaccess.SaveSnapshot(ctx, a.log, tx, bad, "kind", store.Snapshot{State: []byte("{}")})
				},
				"SaveSnapshot of a state": func(ctx context.Context, tx bun.Tx) error {
					return logaccess.SaveSnapshot(ctx, a.log, tx, "account-1", "kind", store.Snapshot{State: []byte(bad)})
				},
				"Load": func(ctx context.Context, tx bun.Tx) error {
					_, _, err := decider.Load(ctx, a.log, tx, everyEvent(), bad)
					return err
				},
				"Replay": func(ctx context.Context, _ bun.Tx) error {
					_, err := a.log.Replay(ctx, db, eventlog.Replay{Name: bad, Consumer: bad})
					return err
				},
				"Active": func(ctx context.Context, tx bun.Tx) error {
					_, err := runner.Active(ctx, tx, bad)
					return err
				},
				"Promote": func(ctx context.Context, _ bun.Tx) error { return runner.Promote(ctx, bad, 1, 0) },
				"Resume": func(ctx context.Context, _ bun.Tx) error {
					_, err := runner.Resume(ctx, bad, 1)
					return err
				},
			}
			for name, call := range calls {
				sent.Store(0)
				err := hooked.RunInTx(a.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
					sent.Store(0)
					err := call(ctx, tx)
					if !errors.Is(err, bus.ErrInvalidText) || isSQL(err) {
						t.Errorf("%s of %q: got %v, want bus.ErrInvalidText", name, bad, err)
					}
					if n := sent.Load(); n > 0 && name != "Tombstone" {
						t.Errorf("%s of %q: got %d statements, want none", name, bad, n)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// isSQL tells whether a database has spoken.
func isSQL(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state)
}
