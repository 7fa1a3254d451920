package main

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// shop has the consumers. A method value carries its dependencies along.
type shop struct{ story *story }

// snippet: consumers

// SendReceipt is an ordinary consumer: it runs at least once.
func (s *shop) SendReceipt(_ context.Context, e OrderPlaced) error {
	s.story.tell("send-receipt", "receipt for %s sent", e.OrderID)
	return nil
}

// ReserveStock is a transactional consumer: what it writes through tx commits
// together with the removal of its message, so it happens exactly once.
func (s *shop) ReserveStock(ctx context.Context, tx bun.Tx, e OrderPlaced) error {
	_, err := tx.NewUpdate().Model((*Order)(nil)).Set("reserved = TRUE").Where("id = ?", e.OrderID).Exec(ctx)
	if err == nil {
		s.story.tell("reserve-stock", "stock for %s reserved, in the transaction that removes the message", e.OrderID)
	}
	return err
}

// end

// ChargeCard fails twice before it succeeds.
func (s *shop) ChargeCard(ctx context.Context, e OrderPlaced) error {
	if m, ok := bus.Current(ctx); ok && m.Attempt <= 2 {
		return errors.New("card terminal is busy")
	}
	s.story.tell("charge-card", "card charged for %s", e.OrderID)
	return nil
}

// NotifyWarehouse never succeeds, so its message ends poisoned.
func (s *shop) NotifyWarehouse(context.Context, OrderPlaced) error {
	return errors.New("warehouse is on fire")
}

// AskForFeedback consumes the delayed payload.
func (s *shop) AskForFeedback(_ context.Context, e FeedbackDue) error {
	s.story.tell("ask-for-feedback", "how did you like %s?", e.OrderID)
	return nil
}

// snippet: middleware

// stampTenant is middleware of the produce side: it adds a header.
func stampTenant(next bus.Sender) bus.Sender {
	return func(ctx context.Context, batch []*bus.Message) error {
		for _, m := range batch {
			if m.Headers == nil {
				m.Headers = map[string]string{}
			}
			m.Headers["tenant"] = "acme"
		}
		return next(ctx, batch)
	}
}

// tellOutcome is middleware of the consume side: it sees every run.
func (s *story) tellOutcome(next bus.Handler) bus.Handler {
	return func(ctx context.Context, m *bus.Message) error {
		err := next(ctx, m)
		if err != nil {
			s.tell(m.Consumer, "attempt %d for tenant %s failed: %v", m.Attempt, m.Headers["tenant"], err)
		}
		s.ran(m, err)
		return err
	}
}

// end
