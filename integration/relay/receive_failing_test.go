package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestALayerThatHangsInAReceiver does not keep Run from ending.
func TestALayerThatHangsInAReceiver(t *testing.T) {
	t.Parallel()
	b := newBroker()
	b.put(event("1", order{ID: "1"}))
	receiver := inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]())
	a := testapp.New(t, testdb.Postgres(t), testapp.Consumed("ship"), receiver.Consumer())
	var calls atomic.Int64
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
		outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, batch *bus.Batch) error {
				calls.Add(1)
				<-release
				return next(ctx, batch)
			}
		}}}))
	runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(a.DB, a.Registry, producer,
		inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, receiver))
	mustEnd(t, runner.Run, func() bool { return calls.Load() > 0 }, free)
}

// dozing is a payload whose key does not come.
type dozing struct {
	Text string `json:"text"`
}

var dozes = make(chan struct{})
var dozed atomic.Int64

func (dozing) PayloadType() string { return "dozing" }

func (p dozing) OrderingKey() string {
	if p.Text == "doze" {
		dozed.Add(1)
		<-dozes
	}
	return "key"
}

// TestAKeyThatHangsInAReceiver does not keep Run from ending.
func TestAKeyThatHangsInAReceiver(t *testing.T) {
	t.Parallel()
	b := newBroker()
	b.put(broker.Record{ContentType: "application/json", Body: []byte(`{"text":"doze"}`),
		Attributes: map[string]string{"specversion": "1.0", "id": "1", "source": "/odd", "type": "dozing"}})
	receiver := inbox.NewReceiver("from-odd", b.subscribe(), inbox.Accept[dozing]())
	a := testapp.New(t, testdb.Postgres(t),
		bus.Consume("feel", func(context.Context, dozing) error { return nil }, bus.Ordered(bus.BlockKey)), receiver.Consumer())
	runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(a.DB, a.Registry, a.Producer,
		inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, receiver))
	mustEnd(t, runner.Run, func() bool { return dozed.Load() > 0 }, sync.OnceFunc(func() { close(dozes) }))
}

// TestALayerThatFailsForOneRecord holds up no others.
func TestALayerThatFailsForOneRecord(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		b.put(event("1", order{ID: "1"}), event("2", order{ID: "bad"}), event("3", order{ID: "3"}))
		receiver := inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]())
		a := testapp.New(t, db, testapp.Consumed("ship"), receiver.Consumer())
		producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
			outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, batch *bus.Batch) error {
					for _, m := range batch.Messages {
						if strings.Contains(string(m.Payload), "bad") {
							return errors.New("no tenant for this one")
						}
					}
					return next(ctx, batch)
				}
			}}}))
		runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, a.Registry, producer,
			inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, receiver))
		s := &service{app: a, runner: runner, stop: func() {}}
		s.run()
		testapp.Eventually(t, "the others are accepted, and it is parked", func() bool {
			got := s.stats()
			return got.Accepted == 2 && got.Parked == 1
		})
		if got := s.stats(); got.Paused != "" {
			t.Errorf("paused: got %q, want nothing after the record is parked", got.Paused)
		}
	})
}

// TestARecordThatTheDatabaseIsSlowAt: the insert of one record always takes longer than it may. The others are accepted.
func TestARecordThatTheDatabaseIsSlowAt(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	b := newBroker()
	b.put(event("1", order{ID: "1"}), event("2", order{ID: "bad"}), event("3", order{ID: "3"}))
	s := receives(t, db, inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]()), testapp.Consumed("ship"))
	s.Exec(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.payload LIKE '%bad%' AND NEW.consumer_type = 'ship' THEN PERFORM pg_sleep(60); END IF; RETURN NEW; END $$`)
	s.Exec(`CREATE TRIGGER slow BEFORE INSERT ON consumer_messages FOR EACH ROW EXECUTE FUNCTION slow()`)
	s.run()
	within := func(what string, limit time.Duration, holds func() bool) {
		t.Helper()
		for end := time.After(limit); !holds(); {
			select {
			case <-end:
				t.Fatalf("%s: not within %s: %+v", what, limit, s.stats())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	within("it is shown", 45*time.Second, func() bool { return s.stats().Paused != "" })
	within("the others are accepted, and it is parked", 60*time.Second, func() bool {
		got := s.stats()
		return got.Accepted == 2 && got.Parked == 1
	})
}
