package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// snippet: payload

// OrderPlaced is a payload: a plain struct with a stable stored name.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

func (OrderPlaced) PayloadType() string { return "order.placed" }

// end

// FeedbackDue asks the customer how it went, a while later.
type FeedbackDue struct {
	OrderID string `json:"order_id"`
}

func (FeedbackDue) PayloadType() string { return "feedback.due" }

// StockCountDue is produced by a schedule.
type StockCountDue struct{}

func (StockCountDue) PayloadType() string { return "stock.count_due" }

// Order is a table of the application.
type Order struct {
	bun.BaseModel `bun:"table:orders"`

	ID       string `bun:"id,pk"`
	Reserved bool   `bun:"reserved"`
}

// Shop has the consumers. A method value carries its dependencies along.
type Shop struct {
	story          *Story
	warehouseWorks atomic.Bool
}

func NewShop(story *Story) *Shop { return &Shop{story: story} }

// snippet: consumers

// NewOrderConsumers names the functions that react to an order.
func NewOrderConsumers(s *Shop) []bus.Consumer {
	return []bus.Consumer{
		bus.Consume("send-receipt", s.SendReceipt),
		outbox.ConsumeTx("reserve-stock", s.ReserveStock, bus.Timeout(2*time.Second)),
		bus.Consume("charge-card", s.ChargeCard),
		bus.Consume("notify-warehouse", s.NotifyWarehouse, bus.MaxAttempts(3)),
	}
}

// ReserveStock is a transactional consumer: what it writes through tx commits
// together with the removal of its message, so it happens exactly once.
func (s *Shop) ReserveStock(ctx context.Context, tx bun.Tx, e OrderPlaced) error {
	_, err := tx.NewUpdate().Model((*Order)(nil)).Set("reserved = TRUE").Where("id = ?", e.OrderID).Exec(ctx)
	if err == nil {
		s.story.tell("reserve-stock", "stock for %s reserved, in the transaction that removes the message", e.OrderID)
	}
	return err
}

// end

// SendReceipt is an ordinary consumer: it runs at least once.
func (s *Shop) SendReceipt(_ context.Context, e OrderPlaced) error {
	s.story.tell("send-receipt", "receipt for %s sent", e.OrderID)
	return nil
}

// ChargeCard fails twice before it succeeds.
func (s *Shop) ChargeCard(ctx context.Context, e OrderPlaced) error {
	if m, ok := bus.MessageFromContext(ctx); ok && m.Attempt <= 2 {
		return errors.New("card terminal is busy")
	}
	s.story.tell("charge-card", "card charged for %s", e.OrderID)
	return nil
}

// NotifyWarehouse fails until somebody puts the fire out.
func (s *Shop) NotifyWarehouse(_ context.Context, e OrderPlaced) error {
	if !s.warehouseWorks.Load() {
		return errors.New("warehouse is on fire")
	}
	s.story.tell("notify-warehouse", "the warehouse packs %s", e.OrderID)
	return nil
}

// NewFeedbackConsumer consumes the delayed payload.
func NewFeedbackConsumer(s *Shop) bus.Consumer {
	return bus.Consume("ask-for-feedback", func(_ context.Context, e FeedbackDue) error {
		s.story.tell("ask-for-feedback", "how did you like %s?", e.OrderID)
		return nil
	})
}

// NewStockConsumer consumes what the schedule produces.
func NewStockConsumer(s *Shop) bus.Consumer {
	return bus.Consume("count-stock", func(context.Context, StockCountDue) error {
		s.story.tell("count-stock", "stock counted")
		return nil
	})
}

// stampTenant is middleware of the produce side: it adds a header.
func stampTenant(next bus.ProduceFunc) bus.ProduceFunc {
	return func(ctx context.Context, b *bus.Batch) error {
		for _, m := range b.Messages {
			if m.Headers == nil {
				m.Headers = map[string]string{}
			}
			m.Headers["tenant"] = "acme"
		}
		return next(ctx, b)
	}
}

// snippet: middleware

// tellOutcome is middleware of the consume side: it sees every run.
func (s *Story) tellOutcome(next bus.Handler) bus.Handler {
	return func(ctx context.Context, m *bus.Message) error {
		err := next(ctx, m)
		if err != nil {
			s.tell(m.Consumer, "attempt %d for tenant %s failed: %v", m.Attempt, m.Headers["tenant"], err)
			s.mark(m.Consumer + " failed")
			return err
		}
		s.mark(m.Consumer)
		return nil
	}
}

// end
