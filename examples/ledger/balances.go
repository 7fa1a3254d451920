package main

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
)

// Balance is a row of the read model.
type Balance struct {
	bun.BaseModel `bun:"table:balances,alias:b"`

	Account string `bun:"account,pk"`
	Amount  int    `bun:"amount"`
}

// balances keeps the read model.
func balances() projection.Projection {
	return projection.Projection{
		Name: "balances",
		On: []projection.Handler{projection.On(book[Opened]), projection.On(book[Deposited]), projection.On(book[Withdrawn]),
			projection.On(book[TransferSent]), projection.On(book[TransferReceived])},
		Reset: func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model((*Balance)(nil)).Where("1 = 1").Exec(ctx)
			return err
		},
		BatchSize: 50,
	}
}

// book adds what an event changes. It would be wrong to apply one twice, and none
// is: the checkpoint moves in the same transaction.
func book[E Event](ctx context.Context, tx bun.Tx, event E) error {
	m, ok := bus.MessageFromContext(ctx)
	if !ok || m.Event == nil {
		return errNoEvent
	}
	row := Balance{Account: m.Event.Stream, Amount: event.amount()}
	_, err := tx.NewInsert().Model(&row).On("CONFLICT (account) DO UPDATE").Set("amount = b.amount + EXCLUDED.amount").Exec(ctx)
	return err
}

// readModel returns the balances as the projection has them.
func (b *bank) readModel(ctx context.Context) (map[string]int, error) {
	var rows []Balance
	if err := b.db.NewSelect().Model(&rows).Scan(ctx); err != nil {
		return nil, err
	}
	amounts := map[string]int{}
	for _, row := range rows {
		amounts[row.Account] = row.Amount
	}
	return amounts, nil
}

// asOf travels in time: the balances as the log had them at a position.
func (b *bank) asOf(ctx context.Context, position int64) (map[string]int, error) {
	amounts := map[string]int{}
	for recorded, err := range b.log.ReadLog(ctx, b.db, 0, eventlog.Filter{Categories: []string{"account"}}) {
		if err != nil {
			return nil, err
		}
		if recorded.Position > position {
			break
		}
		amounts[recorded.Stream] += recorded.Data.(Event).amount()
	}
	return amounts, nil
}
