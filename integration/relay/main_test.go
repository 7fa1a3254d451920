package relay_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

func TestMain(m *testing.M) { testapp.Main(m) }

type (
	app   = testapp.App
	order = testapp.Order
)

const shop = "/shop/orders"

// publishes is the consumer of a service that sends orders to a broker.
func publishes(b broker.Publisher, options ...bus.ConsumerOption) bus.Consumer {
	return publishesWith(b, relay.Config{}, options...)
}

// publishesWith is publishes with settings other than the source and the routes.
func publishesWith(b broker.Publisher, config relay.Config, options ...bus.ConsumerOption) bus.Consumer {
	config.Source, config.Routes = shop, []relay.Route{relay.To[order]("orders")}
	return relay.NewForwarder("to-broker", b, config, append([]bus.ConsumerOption{bus.AttemptDelay(1)}, options...)...)
}

// service is an application that receives.
type service struct {
	*app
	runner *inbox.Runner
	stop   func()
}

// receives makes an application with a receiver and these consumers. Nothing runs yet.
func receives(t *testing.T, db *bun.DB, receiver inbox.Receiver, consumers ...bus.Consumer) *service {
	t.Helper()
	return receivesWith(t, db, inbox.RunnerConfig{}, receiver, consumers...)
}

func receivesWith(t *testing.T, db *bun.DB, config inbox.RunnerConfig, receiver inbox.Receiver, consumers ...bus.Consumer) *service {
	t.Helper()
	a := testapp.New(t, db, append(consumers, receiver.Consumer())...)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, a.Registry, a.Producer, config, receiver))
	return &service{app: a, runner: runner, stop: func() {}}
}

// run runs the receiver until the end of the test, or stop.
func (s *service) run() { s.stop = untilStop(s.T, s.runner.Run) }

// untilStop runs a part until stop, or the end of the test.
func untilStop(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Errorf("run: got %v, want nil", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func (s *service) stats() inbox.Stats {
	s.Helper()
	all := testapp.Must[[]inbox.Stats](s.T)(s.runner.Stats(s.Context()))
	return all[0]
}

// effects counts what a transactional consumer has done, in a table of the test's.
func effects(t *testing.T, db *bun.DB, name string, options ...bus.ConsumerOption) bus.Consumer {
	t.Helper()
	if _, err := db.NewRaw("CREATE TABLE IF NOT EXISTS effects (id VARCHAR(100) NOT NULL, consumer VARCHAR(100) NOT NULL)").Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	return outbox.ConsumeTx(name, func(ctx context.Context, tx bun.Tx, o order) error {
		_, err := tx.NewRaw("INSERT INTO effects (id, consumer) VALUES (?, ?)", o.ID, name).Exec(ctx)
		return err
	}, options...)
}

// wrong counts orders that have not had one effect for the consumer.
func wrong(a *app, n int, consumer string) int {
	a.Helper()
	once := a.Count("SELECT count(*) FROM (SELECT id FROM effects WHERE consumer = ? GROUP BY id HAVING count(*) = 1) e", consumer)
	return max(n-once, 0) + a.Count("SELECT count(*) FROM effects WHERE consumer = ?", consumer) - once
}

// seen is a consumer that keeps the messages it gets.
type seen struct {
	mu       sync.Mutex
	messages []bus.Message
}

func (s *seen) consumer(name string, options ...bus.ConsumerOption) bus.Consumer {
	return bus.Consume(name, func(ctx context.Context, o order) error {
		m, _ := bus.MessageFromContext(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		kept := *m
		kept.Value = o
		s.messages = append(s.messages, kept)
		return nil
	}, options...)
}

func (s *seen) all() []bus.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]bus.Message(nil), s.messages...)
}
