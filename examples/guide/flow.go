package guide

import (
	"context"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Remind produces reminders that must not come late, too often, or with old contents.
func Remind(ctx context.Context, db bun.IDB, producer *outbox.Producer, order string) error {
	// snippet: deadline
	_, err := producer.Produce(ctx, db, ReminderDue{OrderID: order},
		outbox.DeliverBy(time.Now().Add(time.Hour), bus.Discarded)) // or bus.Poisoned
	// end
	if err != nil {
		return err
	}
	// snippet: keys
	_, err = producer.Produce(ctx, db, OrderPlaced{OrderID: order},
		outbox.InsertID("order:"+order, outbox.Debounce(time.Second, time.Minute))) // runs after one quiet second, or after a minute
	// end
	if err != nil {
		return err
	}
	_, err = producer.Produce(ctx, db, ReminderDue{OrderID: order},
		outbox.InsertID("reminder:"+order, outbox.UniqueFor(24*time.Hour))) // not again on the same day
	return err
}

// Index is a search index that takes documents in bulk.
type Index interface {
	Add(ctx context.Context, orders []string) (failed map[int]error, err error)
}

// ErrAway is what the index returns while it cannot be reached.
var ErrAway = errors.New("the index cannot be reached")

// Search keeps an index up to date.
type Search struct {
	Index   Index
	circuit outbox.Circuit // the zero value is closed: messages run
}

// Consumers are those of the index.
func (s *Search) Consumers() []bus.Consumer {
	// snippet: batch-consumers
	return []bus.Consumer{
		bus.ConsumeBatch("index", s.Add, bus.BatchSize(100), bus.BatchWait(50*time.Millisecond), outbox.WithCircuit(&s.circuit)),
		outbox.ConsumeBatchTx("count", s.Count),
	}
	// end
}

// snippet: batch

// Add gets many orders at once.
func (s *Search) Add(ctx context.Context, orders []OrderPlaced) error {
	ids := make([]string, len(orders))
	for i, order := range orders {
		ids[i] = order.OrderID
	}
	failed, err := s.Index.Add(ctx, ids)
	if errors.Is(err, ErrAway) {
		return s.circuit.Trip(err) // opens the circuit; no attempt is counted
	}
	if len(failed) > 0 {
		return bus.BatchError(failed) // an error for each failed message; the others are done
	}
	return err // nil: all are done; an error: all failed
}

// end

// Count counts a batch of orders with one statement, in the transaction that removes their
// messages.
func (s *Search) Count(ctx context.Context, tx bun.Tx, orders []OrderPlaced) error {
	_, err := tx.NewRaw("UPDATE counts SET orders = orders + ?", len(orders)).Exec(ctx)
	return err
}

// Declared is the registry of a program that only produces orders.
func Declared() (*bus.Registry, error) {
	// snippet: declare
	return bus.NewRegistry(
		bus.Declare[OrderPlaced]("index"), // another program runs it
		bus.Declare[OrderPlaced]("count"))
	// end
}

// Forward is a consumer that passes messages on as they are.
func Forward(send func(ctx context.Context, payloadType string, payload []byte) error) bus.Consumer {
	return bus.ConsumeRaw("forward", func(ctx context.Context, batch []*bus.Message) error {
		failed := bus.BatchError{}
		for i, m := range batch {
			failed[i] = send(ctx, m.PayloadType, m.Payload)
		}
		return failed
	}, []string{"order.placed", "reminder.due"})
}

// snippet: key

// AddressChanged is a payload with an ordering key.
type AddressChanged struct {
	CustomerID string
	Address    string
}

// PayloadType implements bus.Payload.
func (AddressChanged) PayloadType() string { return "address.changed" }

// OrderingKey gives all messages of one customer the same key.
func (a AddressChanged) OrderingKey() string { return "customer:" + a.CustomerID }

// end

// Ordered are consumers that run the messages of a customer one after the other.
func Ordered(sync, audit func(context.Context, AddressChanged) error) []bus.Consumer {
	return []bus.Consumer{
		// snippet: ordered
		bus.Consume("sync-address", sync, bus.Ordered(bus.BlockKey)),       // a poisoned message blocks its key
		bus.Consume("audit-address", audit, bus.Ordered(bus.SkipPoisoned)), // the key skips a poisoned message
		// end
	}
}

// Shared are consumers in which a customer with much to do keeps none of the others waiting.
func Shared(sync, audit, export func(context.Context, AddressChanged) error) []bus.Consumer {
	return []bus.Consumer{
		// snippet: per-key
		bus.Consume("sync-address", sync, bus.KeyConcurrency(3)),                   // three of a key at once
		bus.Consume("audit-address", audit, bus.Fair()),                            // no limit, but keys take turns
		bus.Consume("export-address", export, bus.KeyRateLimit(5, time.Second, 1)), // five of a key per second
		// end
	}
}

// Rated are consumers that call a service which takes so many calls in a time.
func Rated(charge func(context.Context, OrderPlaced) error) []bus.Consumer {
	return []bus.Consumer{
		// snippet: rates
		bus.Consume("charge", charge, bus.RateLimit(100, time.Second, 20)), // 100 a second, in bursts of up to 20
		// end
	}
}

// Hurry produces a reminder that comes before others.
func Hurry(ctx context.Context, db bun.IDB, producer *outbox.Producer, order string) error {
	_, err := producer.Produce(ctx, db, ReminderDue{OrderID: order}, outbox.Priority(bus.Urgent))
	return err
}

// Prioritized are consumers that run what is urgent first.
func Prioritized(remind func(context.Context, ReminderDue) error) []bus.Consumer {
	return []bus.Consumer{
		// snippet: priorities
		bus.Consume("send-reminder", remind, bus.Prioritized(5*time.Minute)),
		// end
	}
}

// Broken are consumers that stop while most of what they do fails.
func Broken(charge func(context.Context, OrderPlaced) error) []bus.Consumer {
	return []bus.Consumer{
		// snippet: breaker
		bus.Consume(
			"charge", charge,
			bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 50, FailureRatio: 0.8, Cooldown: 30 * time.Second}),
		),
		// end
	}
}

// Limited are consumers that call services which take only so much.
func Limited(export func(context.Context, ReportDue) error, charge func(context.Context, OrderPlaced) error) []bus.Consumer {
	return []bus.Consumer{
		// snippet: limits
		bus.Consume("export", export, bus.GlobalConcurrency(5)),            // five in all processes
		bus.Consume("charge", charge, bus.SharedConcurrency("stripe", 10)), // ten for all consumers of "stripe"
		// end
	}
}
