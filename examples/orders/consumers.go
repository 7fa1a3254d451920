package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// OrderPlaced starts everything.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Item    string `json:"item"`
}

func (OrderPlaced) PayloadType() string { return "order.placed" }

// OrderCharged lets the order be shipped.
type OrderCharged struct {
	OrderID string `json:"order_id"`
}

func (OrderCharged) PayloadType() string { return "order.charged" }

// shop has the consumers, one of which produces.
type shop struct {
	db       *bun.DB
	producer *outbox.Producer // to be used when consumers run, not before
	busy     func() bool      // whether the payment provider is
}

func newShop(db *bun.DB, producer *outbox.Producer) *shop {
	return &shop{db: db, producer: producer, busy: func() bool { return rand.IntN(3) == 0 }}
}

func newConsumers(s *shop) []bus.Consumer {
	return []bus.Consumer{
		outbox.ConsumeTx("reserve-stock", s.reserveStock),
		bus.Consume("charge-card", s.chargeCard, bus.MaxAttempts(20), bus.Backoff(middleware.Constant(200*time.Millisecond))),
		outbox.ConsumeTx("ship", s.ship),
	}
}

// reserveStock counts the item exactly once per order: the count and the removal
// of the message are one commit.
func (s *shop) reserveStock(ctx context.Context, tx bun.Tx, e OrderPlaced) error {
	stock := Stock{Item: e.Item, Reserved: 1}
	insert := tx.NewInsert().Model(&stock)
	if tx.Dialect().Name() == dialect.MySQL {
		insert = insert.On("DUPLICATE KEY UPDATE").Set("reserved = reserved + 1")
	} else {
		insert = insert.On("CONFLICT (item) DO UPDATE").Set("reserved = stock.reserved + 1")
	}
	if _, err := insert.Exec(ctx); err != nil {
		return err
	}
	return mark(ctx, tx, e.OrderID, "reserved_at")
}

var errBusy = errors.New("payment provider is busy")

// chargeCard calls the outside world, so it may happen twice: the message's id
// is the key by which the provider recognises the second time.
func (s *shop) chargeCard(ctx context.Context, e OrderPlaced) error {
	if s.busy() {
		return errBusy
	}
	m, ok := bus.MessageFromContext(ctx)
	if !ok {
		return errors.New("no message")
	}
	charge := Charge{Key: m.ID.String(), OrderID: e.OrderID}
	return s.producer.RunInTx(ctx, s.db, func(ctx context.Context, tx bun.Tx) error {
		result, err := tx.NewInsert().Model(&charge).Ignore().Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return err // charged by an earlier run, which also produced what follows
		}
		if err := mark(ctx, tx, e.OrderID, "charged_at"); err != nil {
			return err
		}
		_, err = s.producer.Produce(ctx, tx, OrderCharged{OrderID: e.OrderID})
		return err
	})
}

// ship consumes what follows a charge.
func (s *shop) ship(ctx context.Context, tx bun.Tx, e OrderCharged) error {
	return mark(ctx, tx, e.OrderID, "shipped_at")
}

// mark notes when a step of an order was done first.
func mark(ctx context.Context, db bun.IDB, orderID, column string) error {
	_, err := db.NewUpdate().
		Model((*Order)(nil)).
		Set("? = COALESCE(?, ?)", bun.Ident(column), bun.Ident(column), time.Now()).
		Where("id = ?", orderID).
		Exec(ctx)
	return err
}
