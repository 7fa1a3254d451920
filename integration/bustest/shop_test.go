package bustest_test

import (
	"context"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// The application that the guide and the examples test.

// Shop is an application. Its consumers need its producer, which is made from
// the registry that they are in, so it is set afterwards.
type Shop struct {
	db       *bun.DB
	producer *outbox.Producer
	provider func(key, order string) error // charges a card
}

func (s *Shop) Consumers() []bus.Consumer {
	return []bus.Consumer{
		bus.Consume("charge-card", s.ChargeCard, bus.MaxAttempts(3)),
		outbox.ConsumeTx("ship", s.Ship),
	}
}

// PlaceOrder is called by an HTTP handler, say.
func (s *Shop) PlaceOrder(ctx context.Context, tx bun.Tx, id string) error {
	_, err := s.producer.Produce(ctx, tx, OrderPlaced{ID: id})
	return err
}

// ChargeCard consumes OrderPlaced.
func (s *Shop) ChargeCard(ctx context.Context, e OrderPlaced) error {
	m, ok := bus.MessageFromContext(ctx)
	if !ok {
		return errors.New("charge-card was not called with a message")
	}
	if err := s.provider(m.ID.String(), e.ID); err != nil {
		return err
	}
	_, err := s.producer.Produce(ctx, s.db, OrderCharged(e), outbox.Delay(time.Hour), outbox.InsertID("charged:"+e.ID))
	return err
}

// Ship consumes OrderCharged, in the transaction that removes its message.
func (s *Shop) Ship(ctx context.Context, tx bun.Tx, e OrderCharged) error {
	return addEffect(ctx, tx, "shipped "+e.ID)
}

var errBusy = errors.New("provider is busy")

// scheduleNightly is what an application does when it starts.
func scheduleNightly(ctx context.Context, db bun.IDB, s *schedule.Scheduler) error {
	_, err := s.Upsert(ctx, db, OrderPlaced{ID: "standing order"}, "0 0 2 * * *", "UTC", schedule.Name("nightly"))
	return err
}
