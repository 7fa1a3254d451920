package guide

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// OrderPlaced is produced when an order is written.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

// PayloadType is the name under which it is stored.
func (OrderPlaced) PayloadType() string { return "order.placed" }

// ReminderDue is produced for later.
type ReminderDue struct {
	OrderID string `json:"order_id"`
}

// PayloadType is the name under which it is stored.
func (ReminderDue) PayloadType() string { return "reminder.due" }

// ReportDue is produced by a schedule.
type ReportDue struct{}

// PayloadType is the name under which it is stored.
func (ReportDue) PayloadType() string { return "report.due" }

// Order is a table of the shop.
type Order struct {
	bun.BaseModel `bun:"table:orders"`

	ID       string `bun:"id,pk"`
	Reserved bool   `bun:"reserved"`
}

// CardService charges cards, once for each key.
type CardService interface {
	Charge(ctx context.Context, key, order string) error
}

// Errors of the card service.
var (
	ErrDeclined = errors.New("card declined")
	ErrNoOrder  = errors.New("no such order")
)

// BusyError says when to come back.
type BusyError struct{ For time.Duration }

func (e *BusyError) Error() string { return fmt.Sprintf("busy for %s", e.For) }

// Shop has the consumers and what they need.
type Shop struct {
	DB       *bun.DB
	Producer *outbox.Producer
	Cards    CardService
	Open     func() bool
	Write    func(ctx context.Context, report string) error
}

// snippet: consumers

// Consumers gives each function a name. Names are stored with messages, so keep them.
func (s *Shop) Consumers() []bus.Consumer {
	return []bus.Consumer{
		bus.Consume("charge-card", s.ChargeCard, bus.Timeout(30*time.Second), bus.MaxAttempts(8)),
		outbox.ConsumeTx("reserve-stock", s.ReserveStock, bus.Timeout(2*time.Second)),
		bus.Consume("remind", s.Remind, bus.Concurrency(4)),
		bus.Consume("report", s.Report),
	}
}

// end

// snippet: outcomes

// ChargeCard returns an error that decides what happens to the message.
func (s *Shop) ChargeCard(ctx context.Context, e OrderPlaced) error {
	if !s.Open() {
		return bus.Snooze(time.Hour) // runs again in an hour; not a failure
	}
	m, ok := bus.MessageFromContext(ctx)
	if !ok {
		return errors.New("charge-card was called without a message")
	}
	err := s.Cards.Charge(ctx, m.ID.String(), e.OrderID) // the same key in every attempt
	if busy, ok := errors.AsType[*BusyError](err); ok {
		return bus.RetryAfter(busy.For, err) // a failed attempt, retried after the given time
	}
	switch {
	case errors.Is(err, ErrDeclined):
		return bus.Permanent(err) // poisoned at once, without retries
	case errors.Is(err, ErrNoOrder):
		return bus.Discard(err) // removed and logged
	}
	return err // nil: done; any other error: retried with backoff
}

// end

// snippet: transactional

// ReserveStock updates the order, produces a reminder and removes its own message in one
// transaction.
func (s *Shop) ReserveStock(ctx context.Context, tx bun.Tx, e OrderPlaced) error {
	if _, err := tx.NewUpdate().Model((*Order)(nil)).Set("reserved = TRUE").Where("id = ?", e.OrderID).Exec(ctx); err != nil {
		return err
	}
	_, err := s.Producer.Produce(ctx, tx, ReminderDue(e), outbox.Delay(24*time.Hour))
	return err
}

// end

// Remind does nothing that a guide shows.
func (s *Shop) Remind(context.Context, ReminderDue) error { return nil }
