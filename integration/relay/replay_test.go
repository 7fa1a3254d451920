package relay_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// modes is what ran, and in which mode, below a layer that skips mails on a replay.
type modes struct {
	mu  sync.Mutex
	all []string
}

func (m *modes) note(ctx context.Context) error {
	current, _ := bus.MessageFromContext(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, fmt.Sprintf("%s %q", current.Consumer, access.Mode(current)))
	if _, stored := current.Headers["asyncmonolith-mode"]; stored {
		m.all = append(m.all, "the header is shown")
	}
	return nil
}

func (m *modes) ran() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(slices.Sorted(slices.Values(m.all)))
}

func skipping() outbox.ProcessorConfig {
	config := testapp.Fast()
	config.Middleware = middleware.Default(middleware.Options{Middleware: []bus.Middleware{middleware.SkipOnReplay("mail")}})
	return config
}

// TestAReplayFromTheBroker: a receiver of another name takes everything again, marked, so that
// nobody is mailed twice; also what could not be taken at first, and was requeued.
func TestAReplayFromTheBroker(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		forLater := event("2", order{ID: "2"})
		forLater.Attributes["consumers"] = "later"
		b.put(event("1", order{ID: "1"}), forLater)
		var ran modes
		note := func(ctx context.Context, _ order) error { return ran.note(ctx) }
		consumers := []bus.Consumer{bus.Consume("ship", note), bus.Consume("mail", note)}
		live := receives(t, db, inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]()), consumers...)
		live.run()
		stopLive := live.Start(skipping()).MustStop
		testapp.Eventually(t, "it has run", func() bool { return live.stats().Accepted == 1 && live.Empty() && len(live.Poisoned()) == 1 })
		stopLive()
		live.stop()
		if got, want := ran.ran(), `[mail "" ship ""]`; got != want {
			t.Errorf("live: got %s, want %s", got, want)
		}
		ran.all = nil
		live.Exec("DELETE FROM poisoned_messages")

		again := receives(t, db, inbox.NewReceiver("from-shop-again", b.subscribe(), inbox.Accept[order](), inbox.MarkAsReplay()), consumers...)
		again.run()
		stopAgain := again.Start(skipping()).MustStop
		testapp.Eventually(t, "it is over", func() bool { return again.stats().Accepted == 1 && again.Empty() && len(again.Poisoned()) == 1 })
		stopAgain()
		again.stop()
		if got, want := ran.ran(), `[ship "replay"]`; got != want {
			t.Errorf("replay: got %s, want %s", got, want)
		}
		ran.all = nil

		// What was for a consumer that nobody knew is marked, too, once it is known.
		known := receives(t, db, inbox.NewReceiver("from-shop-again", b.subscribe(), inbox.Accept[order](), inbox.MarkAsReplay()),
			append(consumers, bus.Consume("later", note))...)
		known.run()
		known.Start(skipping())
		requeue(known.app)
		testapp.Eventually(t, "it has run", func() bool { return known.Empty() && ran.ran() != "[]" })
		if got, want := ran.ran(), `[later "replay"]`; got != want {
			t.Errorf("requeued: got %s, want %s", got, want)
		}
	})
}

func requeue(a *app) {
	a.Helper()
	store := testapp.Must[*poison.Store](a.T)(poison.NewStore(a.Registry))
	testapp.Must[poison.Result](a.T)(store.Requeue(a.Context(), a.DB, a.Poisoned()[0].ID))
}

// TestAReplayIntoTheLog marks the messages of the events.
func TestAReplayIntoTheLog(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		var ran modes
		note := func(ctx context.Context, _ deposited) error { return ran.note(ctx) }
		receiver := inbox.NewReceiver("again", b.subscribe(), inbox.AppendToLog("bank"), inbox.Accept[deposited](), inbox.MarkAsReplay())
		to := newLedger(t, db, receiver.Consumer(), bus.Consume("tell", note), bus.Consume("mail", note))
		to.receives(receiver)
		to.Start(skipping())
		b.put(broker.Record{Key: "account-1", Body: []byte(`{"amount":7}`), ContentType: "application/json",
			Attributes: map[string]string{"specversion": "1.0", "id": "1", "source": "/bank", "type": "account.deposited"}})
		testapp.Eventually(t, "it has run", func() bool {
			return to.Empty() && to.Count("SELECT count(*) FROM events") == 1 &&
				ran.ran() != "[]"
		})
		if got, want := ran.ran(), `[tell "replay"]`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// TestAReplayThatIsForwarded is live at the other end, unless the relay passes it over.
func TestAReplayThatIsForwarded(t *testing.T) {
	t.Parallel()
	for name, skips := range map[string]bool{"live": false, "passed over": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := newBroker(), newBroker()
			from.put(event("1", order{ID: "1"}), event("2", order{ID: "2"}))
			s := receives(t, testdb.SQLite(t), inbox.NewReceiver("again", from.subscribe(), inbox.Accept[order](), inbox.MarkAsReplay()),
				publishes(to))
			config := testapp.Fast()
			if skips {
				config.Middleware = middleware.Default(middleware.Options{Middleware: []bus.Middleware{middleware.SkipOnReplay("to-broker")}})
			}
			s.run()
			s.Start(config)
			testapp.Eventually(t, "all is done", func() bool { return s.stats().Accepted == 2 && s.Empty() })
			if want := map[bool]int{false: 2, true: 0}[skips]; len(to.all()) != want {
				t.Fatalf("published: got %d, want %d", len(to.all()), want)
			}
			var ran modes
			other := receives(t, testdb.SQLite(t), inbox.NewReceiver("there", to.subscribe(), inbox.Accept[order]()),
				bus.Consume("mail", func(ctx context.Context, _ order) error { return ran.note(ctx) }))
			other.run()
			other.Start(testapp.Fast())
			if skips {
				return
			}
			testapp.Eventually(t, "it has run there", func() bool { return ran.ran() != "[]" && other.Empty() })
			if got, want := ran.ran(), `[mail "" mail ""]`; got != want {
				t.Errorf("there: got %s, want %s", got, want)
			}
		})
	}
}
