package eventlog_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestARebuildReplaysWhatEachShardHasHad rebuilds a projection of which one shard
// is behind the other: what that one had not applied is no replay.
func TestARebuildReplaysWhatEachShardHasHad(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		modes := map[string][]string{}
		broken := true
		p := balances()
		p.Shards, p.MaxAttempts = 2, 1
		p.On = []projection.Handler{projection.On(func(ctx context.Context, _ bun.Tx, e moved) error {
			m, _ := bus.MessageFromContext(ctx)
			if e.Amount < 0 && broken {
				return errors.New("broken")
			}
			modes[m.Event.Stream] = append(modes[m.Event.Stream], access.Mode(m))
			return nil
		})}
		r := l.runner(p)
		// Streams of different shards.
		l.append("account-1", eventlog.AnyVersion, moved{-1})
		l.append("account-3", eventlog.AnyVersion, moved{1}, moved{1})
		for range 4 {
			_, _ = r.CatchUp(l.ctx) // it fails in one shard
		}
		if n := l.count("SELECT count(*) FROM event_subscriptions WHERE status = 'halted'"); n != 1 {
			t.Fatalf("halted shards: got %d, want 1", n)
		}
		if len(modes["account-3"]) == 0 {
			ctx, cancel := context.WithCancel(l.ctx)
			go func() {
				eventually(t, "the other shard is done", func() bool {
					return l.count("SELECT count(*) FROM event_subscriptions WHERE position = 3") == 1
				})
				cancel()
			}()
			testapp.OK(t, r.Run(ctx))
		}
		broken = false
		testapp.OK(t, r.Rebuild(l.ctx, "balances"))
		l.catchUp(r)
		if got := modes["account-1"]; len(got) != 1 || got[0] == "replay" {
			t.Errorf("modes of an event that was never applied before: got %v, want no replay", got)
		}
		if got := modes["account-3"]; len(got) != 4 || got[2] != "replay" || got[3] != "replay" {
			t.Errorf("modes of what was applied before: got %v, want two replays in the end", got)
		}
	})
}

// TestToWaitForARetiredVersionIsAnError has an old process wait for a projection
// whose next version is in use.
func TestToWaitForARetiredVersionIsAnError(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.SQLite(t))
	old, next := l.runner(balances()), l.runner(balances2())
	l.fill(2, 4)
	l.catchUp(old)
	l.catchUp(next)
	testapp.OK(t, next.Promote(l.ctx, "balances", 2, 0))
	ctx, cancel := context.WithTimeout(l.ctx, 2*time.Minute)
	defer cancel()
	if err := old.WaitFor(ctx, "balances", l.append("account-1", eventlog.AnyVersion, moved{1})); !errors.Is(err, projection.ErrRetired) {
		t.Errorf("wait for a retired version: got %v, want ErrRetired", err)
	}
}

// TestAReplayKeepsItsRate writes few messages a second, from the first one on.
func TestAReplayKeepsItsRate(t *testing.T) {
	t.Parallel()
	a := newApp(t, testdb.SQLite(t), bus.Consume("c", func(context.Context, moved) error { return nil }))
	events := make([]bus.Payload, 50)
	for i := range events {
		events[i] = moved{i}
	}
	a.append("account-1", eventlog.AnyVersion, events...)
	a.exec("DELETE FROM consumer_messages")
	ctx, cancel := context.WithTimeout(a.ctx, 4*time.Second)
	defer cancel()
	n, err := a.log.Replay(ctx, a.db, eventlog.Replay{Name: "slow", Consumer: "c", Rate: 5})
	if !errors.Is(err, context.DeadlineExceeded) || n > 25 || n == 0 {
		t.Errorf("replayed in 4 s at a rate of 5: got %d and %v, want 25 at most", n, err)
	}
}

// TestAnImportThatIsRepeatedIsAsGiven: RunInTx repeats what loses a conflict, with the same messages.
func TestAnImportThatIsRepeatedIsAsGiven(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		marks := bus.PerMessage(func(_ context.Context, m *bus.Message) error { m.Headers["mark"] += "x"; return nil })
		a := setup{producer: outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{marks}}}.newApp(t, db)
		given := map[string]string{"mark": "by "}
		m := &bus.Message{ID: uuid.Must(uuid.NewV7()), PayloadType: "account.moved", Payload: []byte(`{"amount":7}`),
			Headers: maps.Clone(given), Event: &bus.Event{Stream: "account-1"}}
		tries := 0
		err := a.log.RunInTx(a.ctx, db, func(ctx context.Context, tx bun.Tx) error {
			if err := logaccess.Import(ctx, a.log, tx, m); err != nil {
				return err
			}
			if tries++; tries < 3 {
				return &eventlog.ConflictError{Stream: "account-2"}
			}
			return nil
		})
		events := a.stream("account-1")
		if err != nil || tries != 3 || len(events) != 1 || events[0].Data != (moved{7}) || events[0].Headers["mark"] != "by x" {
			t.Errorf("got %+v, error %v after %d tries, want the event as it was given, once, in the third", events, err, tries)
		}
		if !maps.Equal(m.Headers, given) || m.Event.Version != 0 || m.Event.Sequence != 0 {
			t.Errorf("the message of the caller: got %+v and event %+v, want it as it was", m, m.Event)
		}
	})
}

// TestInlinesHaveHeadersOfTheirOwn: what one makes of them is neither another's nor the message's.
func TestInlinesHaveHeadersOfTheirOwn(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		all := types(t)
		var saw []string
		inline := func(name string) eventlog.Inline {
			made, err := projection.NewInline(all, projection.Projection{Name: name, Types: []string{"account.moved"},
				Batch: func(_ context.Context, _ bun.Tx, events []eventlog.RecordedEvent) error {
					saw = append(saw, events[0].Headers["by"])
					events[0].Headers["by"] = name
					return nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		a := setup{types: all, log: eventlog.LogConfig{Inline: []eventlog.Inline{inline("a"), inline("b")}}}.newApp(t, db,
			consumeMoved("c", func(context.Context, int) {}))
		err := a.inTx(func(ctx context.Context, tx bun.Tx) error {
			_, err := a.log.AppendAll(ctx, tx, eventlog.Write{Stream: "account-1", Events: []bus.Payload{moved{1}},
				Headers: map[string]string{"by": "me"}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var headers string
		if err := db.NewRaw("SELECT headers FROM consumer_messages").Scan(a.ctx, &headers); err != nil ||
			!strings.Contains(headers, `"by":"me"`) || !slices.Equal(saw, []string{"me", "me"}) {
			t.Errorf("got headers %s, error %v, and the inlines saw %q, want what was appended", headers, err, saw)
		}
	})
}
