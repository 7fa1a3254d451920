package eventlog_test

import (
	"context"
	"errors"
	"maps"
	"strings"
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
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

type account struct {
	Open    bool `json:"open"`
	Balance int  `json:"balance"`
}

// move is a command: an amount to add, which opens the account as well.
type move int

var errOverdrawn = errors.New("overdrawn")

func accounts(every int) decider.Decider[account, move, bus.Payload] {
	return decider.Decider[account, move, bus.Payload]{
		Category:  "account",
		Snapshots: decider.Snapshots{Every: every},
		Evolve: func(a account, event bus.Payload) account {
			switch e := event.(type) {
			case opened:
				a.Open = true
			case moved:
				a.Balance += e.Amount
			}
			return a
		},
		Decide: func(_ context.Context, a account, m move) ([]bus.Payload, error) {
			switch {
			case a.Balance+int(m) < 0:
				return nil, errOverdrawn
			case m == 0:
				return nil, nil
			case !a.Open:
				return []bus.Payload{opened{}, moved{int(m)}}, nil
			}
			return []bus.Payload{moved{int(m)}}, nil
		},
	}
}

func TestDeciderExecutes(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db)
		d := accounts(0)
		state, appended, err := decider.Execute(a.ctx, a.log, db, d, "1", 5)
		if err != nil || state != (account{true, 5}) || appended.Version != 2 {
			t.Fatalf("first command: got %+v, %+v and %v", state, appended, err)
		}
		if _, appended, err := decider.Execute(a.ctx, a.log, db, d, "1", 0); err != nil || appended.Sequence != 0 || appended.Version != 2 {
			t.Errorf("command without events: got %+v and %v, want version 2", appended, err)
		}
		if _, _, err := decider.Execute(a.ctx, a.log, db, d, "1", -6); !errors.Is(err, errOverdrawn) {
			t.Errorf("refused command: got %v, want errOverdrawn", err)
		}
		if _, version, err := decider.Load(a.ctx, a.log, db, d, "2"); version != 0 || err != nil {
			t.Errorf("load of nothing: got %d and %v", version, err)
		}
		a.append("account-3", eventlog.AnyVersion, moved{1})
		narrow := decider.Decider[int, int, moved]{Category: "account", Evolve: func(n int, e moved) int { return n + e.Amount },
			Decide: func(context.Context, int, int) ([]moved, error) { return nil, nil }}
		if n, _, err := decider.Load(a.ctx, a.log, db, narrow, "3"); n != 1 || err != nil {
			t.Errorf("narrow decider: got %d and %v, want 1", n, err)
		}
		if _, _, err := decider.Load(a.ctx, a.log, db, narrow, "1"); err == nil || !strings.Contains(err.Error(), "opened") {
			t.Errorf("event of another kind: got %v, want an error that names it", err)
		}
		if _, _, err := decider.Execute(a.ctx, a.log, db, decider.Decider[int, int, moved]{Snapshots: decider.Snapshots{Every: -1}}, "1",
			1); err == nil ||
			!strings.Contains(err.Error(), "Category") || !strings.Contains(err.Error(), "Evolve") || !strings.Contains(err.Error(), "Every -1") {
			t.Errorf("bad decider: got %v, want every mistake", err)
		}
	})
}

// TestDecidersRace has many spend from one account: it is never overdrawn, and no
// command is lost.
func TestDecidersRace(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db)
		d := accounts(10)
		if _, _, err := decider.Execute(a.ctx, a.log, db, d, "1", 50); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		spent, refused := 0, 0
		for range 2 { // SQLite's lock is not fair
			wg.Go(func() {
				for range 30 {
					_, _, err := decider.Execute(a.ctx, a.log, db, d, "1", -1)
					mu.Lock()
					switch _, conflict := errors.AsType[*eventlog.ConflictError](err); {
					case err == nil:
						spent++
					case errors.Is(err, errOverdrawn):
						refused++
					case !conflict:
						t.Errorf("execute: %v", err)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		state, version, err := decider.Load(a.ctx, a.log, db, d, "1")
		if err != nil || state.Balance != 50-spent || version != int64(2+spent) {
			t.Errorf("after %d spent and %d refused: got %+v at version %d and %v", spent, refused, state, version, err)
		}
		err = a.inTx(func(ctx context.Context, tx bun.Tx) error { return decider.Verify(ctx, a.log, tx, d, "1") })
		if err != nil {
			t.Error(err)
		}
	})
}

// TestExecuteDecidesTwice: the second decision holds the stream's lock, so that no other append comes before it.
func TestExecuteDecidesTwice(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t) // SQLite has one writer at a time, and so no conflicts
	a := newApp(t, db)
	a.append("account-1", eventlog.AnyVersion, moved{1})
	d, decided := accounts(0), 0
	decide := d.Decide
	d.Decide = func(ctx context.Context, state account, amount move) ([]bus.Payload, error) {
		other := a.ctx
		if decided++; decided > 1 {
			short, cancel := context.WithTimeout(a.ctx, 300*time.Millisecond)
			defer cancel()
			other = short
		}
		err := db.RunInTx(other, nil, func(ctx context.Context, tx bun.Tx) error {
			return testapp.Second(a.log.Append(ctx, tx, "account-1", eventlog.AnyVersion, moved{1}))
		})
		if (err == nil) != (decided == 1) {
			t.Errorf("another append before decision %d: got error %v, want one before the second only", decided, err)
		}
		return decide(ctx, state, amount)
	}
	if _, _, err := decider.Execute(a.ctx, a.log, db, d, "1", 5); err != nil || decided != 2 {
		t.Errorf("got %d decisions, error %v, want 2", decided, err)
	}
}

func TestDeciderInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db)
		d := accounts(0)
		err := a.inTx(func(ctx context.Context, tx bun.Tx) error {
			for _, id := range []string{"1", "2", "1"} {
				if _, _, err := decider.Handle(ctx, a.log, tx, d, id, 7); err != nil {
					return err
				}
			}
			return nil
		})
		if state, _, loadErr := decider.Load(a.ctx, a.log, db, d, "1"); err != nil || loadErr != nil || state.Balance != 14 {
			t.Errorf("got %+v, %v and %v, want 14", state, err, loadErr)
		}
	})
}

func TestSnapshotsAreACache(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db)
		d := accounts(10)
		for i := range 25 {
			if _, _, err := decider.Execute(a.ctx, a.log, db, d, "1", move(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		if n := a.count("SELECT version FROM event_snapshots"); n != 20 {
			t.Errorf("snapshot: got version %d, want 20", n)
		}
		// What a snapshot says counts, and what comes after it is read.
		load := func(d decider.Decider[account, move, bus.Payload]) (int, error) {
			state, _, err := decider.Load(a.ctx, a.log, db, d, "1")
			return state.Balance, err
		}
		if n, err := load(d); n != 325 || err != nil {
			t.Errorf("state: got %d and %v, want 325", n, err)
		}
		a.exec(`UPDATE event_snapshots SET state = replace(state, '"balance":', '"balance":1000')`)
		if n, _ := load(d); n < 1000 {
			t.Errorf("state by a snapshot that is off: got %d, want it to show", n)
		}
		err := a.inTx(func(ctx context.Context, tx bun.Tx) error { return decider.Verify(ctx, a.log, tx, d, "1") })
		if err == nil || !strings.Contains(err.Error(), "Schema") {
			t.Errorf("verify: got %v, want an error", err)
		}
		d.Snapshots.Schema = 1
		if n, err := load(d); n != 325 || err != nil {
			t.Errorf("state of another schema: got %d and %v, want 325", n, err)
		}
		type wider struct {
			Open, New bool
			Balance   int
		}
		misfit := decider.Decider[wider, move, bus.Payload]{Category: "account", Snapshots: decider.Snapshots{Every: 10},
			Evolve: func(w wider, _ bus.Payload) wider { return w }, Decide: func(context.Context, wider, move) ([]bus.Payload,
				error) {
				return nil, nil
			}}
		if _, _, err := decider.Load(a.ctx, a.log, db, misfit, "1"); !errors.Is(err, decider.ErrSnapshotMismatch) {
			t.Errorf("another form of the state: got %v, want ErrSnapshotMismatch", err)
		}
		err = a.inTx(func(ctx context.Context, tx bun.Tx) error { return a.log.Tombstone(ctx, tx, "account-1") })
		if err != nil || a.count("SELECT count(*) FROM event_snapshots") != 0 {
			t.Errorf("tombstone: got %v, and the snapshot is there", err)
		}
		narrow := decider.Decider[int, int, moved]{Category: "account", Evolve: func(n int, e moved) int { return n },
			Decide: func(context.Context, int, int) ([]moved, error) { return nil, nil }}
		if _, _, err := decider.Load(a.ctx, a.log, db, narrow, "1"); !errors.Is(err, eventlog.ErrTombstoned) {
			t.Errorf("load of a tombstoned stream: got %v, want ErrTombstoned", err)
		}
	})
}

// TestADroppedEventAtTheEndIsNoConflict has an upcaster hide the last event of a
// stream, which counts towards its version all the same.
func TestADroppedEventAtTheEndIsNoConflict(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		old := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[movedBefore](), eventlog.Event[opened]()))
		setup{types: old}.newApp(t, db).append("account-1", eventlog.NoStream, opened{}, movedBefore{"5"}, movedBefore{"drop"})
		a := setup{types: types3(t)}.newApp(t, db)
		d := decider.Decider[int, int, bus.Payload]{Category: "account",
			Evolve: func(balance int, event bus.Payload) int {
				if e, ok := event.(moved3); ok {
					balance += e.Amount
				}
				return balance
			},
			Decide: func(_ context.Context, _, amount int) ([]bus.Payload, error) {
				return []bus.Payload{moved3{amount}}, nil
			}}
		if _, version, err := decider.Load(a.ctx, a.log, db, d, "1"); version != 3 || err != nil {
			t.Errorf("load: got version %d and %v, want 3", version, err)
		}
		state, appended, err := decider.Execute(a.ctx, a.log, db, d, "1", 7)
		if err != nil || state != 57 || appended.Version != 4 {
			t.Errorf("execute: got %+v, %+v and %v, want a balance of 57 at version 4", state, appended, err)
		}
	})
}

// TestExecuteInATransaction is Execute where Handle is meant: its effects would
// commit apart from the consumer's, and on SQLite wait for its lock in vain.
func TestExecuteInATransaction(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db)
		err := a.inTx(func(ctx context.Context, _ bun.Tx) error {
			_, _, err := decider.Execute(ctx, a.log, db, accounts(0), "1", 5)
			return err
		})
		if !errors.Is(err, txn.ErrNotInTx) {
			t.Errorf("execute in a transaction: got %v, want ErrNotInTx", err)
		}
		if n := len(a.stream("account-1")); n != 0 {
			t.Errorf("events: got %d, want none", n)
		}
	})
}

// shop has fields that encoding leaves out, and a map from which something can be taken.
type shop struct {
	Trial bool           `json:"trial,omitempty"`
	Until time.Time      `json:"until,omitzero"`
	Stock map[string]int `json:"stock,omitempty"`
}

// TestASnapshotTakesAwayWhatTheInitialStateHad: what an event has taken away is not in a snapshot, and must not come
// back with the state that it is read into. A map that is empty stays one that can be written to.
func TestASnapshotTakesAwayWhatTheInitialStateHad(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		for name, test := range map[string]struct{ initial, want shop }{
			"a field and an entry": {shop{Trial: true, Stock: map[string]int{"sample": 1, "thing": 0}}, shop{Stock: map[string]int{"thing": 2}}},
			"an empty map":         {shop{Trial: true, Stock: map[string]int{}}, shop{Stock: map[string]int{"thing": 2}}},
		} {
			a := newApp(t, db)
			d := decider.Decider[shop, move, bus.Payload]{
				Category: "shop", Snapshots: decider.Snapshots{Every: 1},
				Initial: func() shop {
					return shop{Trial: test.initial.Trial, Until: time.Unix(1, 0), Stock: maps.Clone(test.initial.Stock)}
				},
				Evolve: func(s shop, event bus.Payload) shop {
					s.Stock = maps.Clone(s.Stock)
					switch e := event.(type) {
					case opened:
						s.Trial, s.Until = false, time.Time{}
						delete(s.Stock, "sample")
					case moved:
						s.Stock["thing"] += e.Amount
					}
					return s
				},
				Decide: func(_ context.Context, _ shop, m move) ([]bus.Payload, error) {
					if m == 0 {
						return []bus.Payload{opened{}}, nil
					}
					return []bus.Payload{moved{int(m)}}, nil
				},
			}
			for _, m := range []move{0, 2} {
				if _, _, err := decider.Execute(a.ctx, a.log, db, d, name, m); err != nil {
					t.Fatal(err)
				}
			}
			got, version, err := decider.Load(a.ctx, a.log, db, d, name)
			if err != nil || version != 2 || got.Trial != test.want.Trial || !got.Until.IsZero() || !maps.Equal(got.Stock, test.want.Stock) {
				t.Errorf("%s: got %+v of version %d, error %v, want %+v", name, got, version, err, test.want)
			}
		}
	})
}

type (
	stamped struct { // whose encoding is that of the time
		time.Time
		Balance int
	}
	hidden struct{ Balance int }
	within struct{ *hidden }
)

// TestStatesThatJSONLosesAreNotKept: such a state has no snapshot, and is that of its events.
func TestStatesThatJSONLosesAreNotKept(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		keptOf(t, db, "stamped", func(s stamped, n int) stamped { s.Balance += n; return s }, func(s stamped) int { return s.Balance })
		keptOf(t, db, "within", func(s within, n int) within {
			if s.hidden == nil {
				return within{&hidden{n}}
			}
			return within{&hidden{s.Balance + n}}
		}, func(s within) int { return s.Balance })
	})
}

func keptOf[S any](t *testing.T, db *bun.DB, category string, add func(S, int) S, balance func(S) int) {
	t.Helper()
	a := newApp(t, db)
	d := decider.Decider[S, move, bus.Payload]{
		Category: category, Snapshots: decider.Snapshots{Every: 2},
		Evolve: func(s S, e bus.Payload) S { return add(s, e.(moved).Amount) },
		Decide: func(_ context.Context, _ S, m move) ([]bus.Payload, error) { return []bus.Payload{moved{int(m)}}, nil },
	}
	for range 4 {
		if _, _, err := decider.Execute(a.ctx, a.log, db, d, "1", 100); err != nil {
			t.Fatalf("%s: %v", category, err)
		}
	}
	s, _, err := decider.Load(a.ctx, a.log, db, d, "1")
	if err != nil || balance(s) != 400 {
		t.Errorf("%s: got %+v and %v, want 400", category, s, err)
	}
	if err := d.Check(s); err == nil {
		t.Errorf("%s: check: got no error for a state that JSON loses", category)
	}
}

// lossy is a state that JSON rejects. It counts how often it is encoded.
type lossy struct {
	balance int
	encoded *atomic.Int32
}

func (l lossy) MarshalJSON() ([]byte, error) {
	l.encoded.Add(1)
	return nil, errors.New("not a number")
}

func (l *lossy) UnmarshalJSON([]byte) error { return nil }

// TestAStateThatJSONRejectsIsEncodedOnceInEvery: each time costs a warning.
func TestAStateThatJSONRejectsIsEncodedOnceInEvery(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a, encoded := newApp(t, db), new(atomic.Int32)
	d := decider.Decider[lossy, move, bus.Payload]{
		Category: "lossy", Snapshots: decider.Snapshots{Every: 10},
		Initial: func() lossy { return lossy{encoded: encoded} },
		Evolve:  func(l lossy, e bus.Payload) lossy { return lossy{l.balance + e.(moved).Amount, l.encoded} },
		Decide: func(_ context.Context, _ lossy, m move) ([]bus.Payload, error) {
			return []bus.Payload{moved{int(m)}}, nil
		},
	}
	for range 35 {
		if _, _, err := decider.Execute(a.ctx, a.log, db, d, "1", 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := encoded.Load(); n != 3 {
		t.Errorf("35 commands: the state was encoded %d times, want 3", n)
	}
	if n := a.count("SELECT count(*) FROM event_snapshots"); n != 0 {
		t.Errorf("got %d snapshots, want none", n)
	}
}
