package eventlog_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// TestReactorsRunAsConsumersDo appends, and follows an event through a plain and a
// transactional consumer, a retry, the poisoned messages and back.
func TestReactorsRunAsConsumersDo(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		type seen struct {
			consumer, owner, header string
			event                   bus.Event
		}
		got := make(chan seen, 10)
		var a *app
		broken := true
		see := func(ctx context.Context, e opened) seen {
			m, _ := bus.MessageFromContext(ctx)
			return seen{m.Consumer, e.Owner, m.Headers["tenant"], *m.Event}
		}
		a = newApp(t, db,
			outbox.ConsumeTx("follow", func(ctx context.Context, tx bun.Tx, e opened) error {
				got <- see(ctx, e)
				_, err := a.log.Append(ctx, tx, "copy-1", eventlog.AnyVersion, moved{1})
				return err
			}),
			bus.Consume("break", func(ctx context.Context, e opened) error {
				if broken {
					return errors.New("broken")
				}
				got <- see(ctx, e)
				return nil
			}))
		err := a.inTx(func(ctx context.Context, tx bun.Tx) error {
			_, err := a.log.AppendAll(ctx, tx, eventlog.Write{Stream: "account-1", Expected: eventlog.NoStream,
				Events: []bus.Payload{moved{3}, opened{"ann"}}, Headers: map[string]string{"tenant": "t"}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := a.count("SELECT count(*) FROM consumer_messages WHERE payload = ''"); n != 2 {
			t.Errorf("messages without a copy of the payload: got %d, want 2", n)
		}
		a.process()
		want := seen{"follow", "ann", "t", bus.Event{Stream: "account-1", Version: 2, Schema: 1}}
		check := func(got seen, consumer string) {
			t.Helper()
			want.consumer, want.event.Sequence, want.event.Position = consumer, got.event.Sequence, got.event.Position
			if got != want || got.event.Sequence == 0 {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		check(receive(t, got), "follow")
		eventually(t, "one is consumed, one poisoned", func() bool {
			return a.count("SELECT count(*) FROM consumer_messages") == 0 && a.count("SELECT count(*) FROM poisoned_messages") == 1
		})
		if n := len(a.stream("copy-1")); n != 1 {
			t.Errorf("events appended by the consumer: got %d, want 1", n)
		}
		broken = false
		store := testapp.Must[*poison.Store](t)(poison.NewStore(a.registry))
		testapp.OK(t, testapp.Second(store.RequeueWhere(a.ctx, db, poison.Filter{}, 10)))
		check(receive(t, got), "break")
	})
}

func TestARolledBackAppendLeavesNothing(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, bus.Consume("never", func(context.Context, opened) error { return nil }))
		stop := errors.New("stop")
		err := a.inTx(func(ctx context.Context, tx bun.Tx) error {
			if _, err := a.log.Append(ctx, tx, "account-1", eventlog.NoStream, opened{}); err != nil {
				return err
			}
			return stop
		})
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
		if n := a.count("SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM event_streams) + (SELECT count(*) FROM consumer_messages)"); n != 0 {
			t.Errorf("rows after a rollback: got %d, want 0", n)
		}
		a.append("account-1", eventlog.NoStream, opened{})
		if events := a.all(eventlog.Filter{}); len(events) != 1 || events[0].Position != 1 {
			t.Errorf("log: got %+v, want one event at position 1", events)
		}
	})
}

// TestACommitWakesWhomItConcerns listens to what appends announce, and when.
func TestACommitWakesWhomItConcerns(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, bus.Consume("never", func(context.Context, opened) error { return nil }))
		var got []wakeup.Wake
		defer access.Wakeups(a.registry).Listen(func(w wakeup.Wake) { got = append(got, w) })()
		appending := func(event bus.Payload) func(ctx context.Context, tx bun.Tx) error {
			return func(ctx context.Context, tx bun.Tx) error {
				_, err := a.log.Append(ctx, tx, "account-1", eventlog.AnyVersion, event)
				for _, w := range got {
					if !w.Expected {
						t.Errorf("woken before the commit: %+v", w)
					}
				}
				return err
			}
		}
		want := func(what string, err error, wakes ...wakeup.Wake) {
			t.Helper()
			if err != nil || !reflect.DeepEqual(got, wakes) {
				t.Errorf("%s: got %+v, %v; want %+v", what, got, err, wakes)
			}
			got = nil
		}
		events := wakeup.Wake{Events: true}
		want("nobody consumes it", a.log.RunInTx(a.ctx, db, appending(moved{})), events)
		opened1 := wakeup.Wake{PayloadTypes: []string{"account.opened"}}
		want("a consumer", a.log.RunInTx(a.ctx, db, appending(opened{})), opened1, events)
		want("the producer's", a.inTx(appending(opened{})), opened1, events)
		want("nothing is written", a.log.RunInTx(a.ctx, db, func(context.Context, bun.Tx) error { return nil }))

		opened1.Expected, events.Expected = true, true
		want("a transaction that is not ours", db.RunInTx(a.ctx, nil, appending(opened{})), opened1, events)
	})
}

// TestAppendsLookLikeProducesToTheChain has a layer see, and add to, what is stored.
func TestAppendsLookLikeProducesToTheChain(t *testing.T) {
	t.Parallel()
	mark := bus.PerMessage(func(_ context.Context, m *bus.Message) error {
		m.Headers = map[string]string{"seen": m.PayloadType}
		return nil
	})
	a := setup{producer: outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{mark}}}.newApp(t, testdb.SQLite(t))
	a.append("account-1", eventlog.AnyVersion, moved{1})
	if events := a.stream("account-1"); events[0].Headers["seen"] != "account.moved" {
		t.Errorf("headers: got %v, want what the chain added", events[0].Headers)
	}
	if _, err := a.producer.Produce(a.ctx, a.db, moved{1}); !errors.Is(err, bus.ErrNoConsumer) {
		t.Errorf("produce of an event without consumers: got %v, want ErrNoConsumer", err)
	}
	stray := &bus.Message{PayloadType: "account.moved", Payload: []byte("{}"), Event: &bus.Event{}}
	if err := a.producer.Send(a.ctx, a.db, stray); err == nil {
		t.Error("send of an event that nobody appended: got no error")
	}
}
