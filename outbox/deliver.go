package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// deliver sends a batch through the chain and returns the receipts by message id.
func (p *Producer) deliver(
	ctx context.Context, h bus.Handle, batch []*bus.Message, record store.Record,
) (receipts map[uuid.UUID]Receipt, err error) {
	err = p.stores.Through(ctx, h, errUnmade, func(st *store.Store, db bun.IDB) (err error) {
		if len(batch) > 0 {
			receipts, err = p.deliverIn(ctx, st, db, batch, record)
		}
		return err
	})
	return receipts, err
}

func (p *Producer) deliverIn(
	ctx context.Context, st *store.Store, db bun.IDB, batch []*bus.Message, record store.Record,
) (receipts map[uuid.UUID]Receipt, err error) {
	receipts = make(map[uuid.UUID]Receipt, len(batch))
	var wakeups *txn.Wakeups // of a transaction of the library's own
	send := func(ctx context.Context, db bun.IDB) error {
		return access.RunProduce(ctx, p.chain, batch, func(ctx context.Context, batch []*bus.Message) error {
			if wakeups != nil && slices.ContainsFunc(batch, delaysOthers) {
				if err := txn.Bound(ctx, db.(bun.Tx), layersIdle); err != nil {
					return err
				}
			}
			return p.write(ctx, st, db, batch, record, receipts)
		})
	}
	if len(p.config.Middleware) == 0 {
		return receipts, send(ctx, db)
	}
	// A layer may send a batch in parts, and fail after the inner layers have written.
	var asGiven []*bus.Message
	if _, isTx := db.(bun.Tx); !isTx {
		ctx, wakeups = txn.WithWakeups(ctx)
		asGiven = store.Each(batch, access.Clone)
	}
	// Rows that no other transaction waits for are not worth the statement of a bound.
	err = txn.InTx(txn.WithIdle(ctx, 0), db, func(tx bun.Tx) error {
		clear(receipts)
		for i := range asGiven { // undo changes by layers if the transaction is repeated
			*batch[i] = *access.Clone(asGiven[i])
		}
		return send(ctx, tx)
	})
	if err == nil && wakeups != nil {
		wakeups.Send(p.registry)
	}
	return receipts, err
}

// layersIdle is how long a layer may take after it has written rows that others wait for.
const layersIdle = 15 * time.Second

// delaysOthers reports whether other transactions wait for one that has written the message: those that write its insert id, or end
// its group.
func delaysOthers(m *bus.Message) bool { return m.InsertID != "" || m.Group != "" }

// WhenDone produces the payload once no member of the group is pending: each one was consumed,
// discarded, cancelled or deleted. A group without members is done at once. group is the result of
// [Group]. db, the checks and the errors are those of [Producer.Produce]. A poisoned member keeps the
// group waiting: see [IfPoisoned]. A second call for a group that is not done returns
// [ErrGroupExists]. Once the group is done, its name can be used again.
//
// The payload passes through the produce chain now, and is written for its consumers by a
// [Processor] when the group is done, exactly once. A delay counts from then. The payload cannot be a
// member of a group.
//
// Produce the members before WhenDone, in its transaction, or in consumers of other members. Any other
// message that joins while the group waits also delays it. A message that joins after the group is
// done belongs to the next use of the name.
func (p *Producer) WhenDone(ctx context.Context, db bus.Handle, group Option, payload bus.Payload, options ...WhenDoneOption) error {
	if p == nil || p.registry == nil {
		return fmt.Errorf("outbox: when done: %w", errUnmade)
	}
	name, done, poisoned, err := itemsOf(group, payload, options)
	if err == nil {
		err = p.whenDone(ctx, db, name, done, poisoned)
	}
	if err != nil {
		return fmt.Errorf("outbox: when done: %w", err)
	}
	return nil
}

func (p *Producer) whenDone(ctx context.Context, h bus.Handle, name string, done Item, poisoned *Item) error {
	g := store.MessageGroup{Name: name}
	var err error
	if g.Messages, err = p.waiting(ctx, done); err != nil {
		return err
	}
	if poisoned != nil {
		if g.Poisoned, err = p.waiting(ctx, *poisoned); err != nil {
			return fmt.Errorf("if poisoned: %w", err)
		}
	}
	return p.stores.Through(ctx, h, errUnmade, func(st *store.Store, db bun.IDB) error {
		stored := false
		write := func(tx bun.Tx) (err error) {
			stored, err = st.Groups.Wait(ctx, tx, g)
			return err
		}
		tx, isTx := db.(bun.Tx)
		if isTx {
			err = write(tx)
		} else {
			err = txn.InTx(ctx, db, write)
		}
		switch {
		case err != nil:
			return err
		case !stored:
			return fmt.Errorf("group %q: %w", name, ErrGroupExists)
		}
		txn.Announce(ctx, db, p.registry, wakeup.Wake{Groups: []string{name}})
		return nil
	})
}

// waiting sends a payload down the produce chain and returns the rows to write once its group is
// done.
func (p *Producer) waiting(ctx context.Context, item Item) (rows []store.NewMessage, err error) {
	m, err := p.message(item)
	if err == nil {
		err = p.checkWaiting(m)
	}
	if err != nil {
		return nil, err
	}
	rows = []store.NewMessage{}
	seen := make(map[uuid.UUID]Receipt)
	err = access.RunProduce(ctx, p.chain, []*bus.Message{m}, func(ctx context.Context, batch []*bus.Message) error {
		for _, m := range batch {
			if err := p.checkWaiting(m); err != nil {
				return err
			}
		}
		if _, err := p.checked(batch, store.Clock(ctx), false, seen); err != nil {
			return err
		}
		part, err := p.rows(batch)
		if err != nil {
			return err
		}
		for _, m := range batch {
			seen[m.ID] = Receipt{}
		}
		rows = append(rows, part...)
		return nil
	})
	return rows, err
}

// checkWaiting refuses what cannot wait for a group. A member of another group would be missing there
// until this one is done.
func (p *Producer) checkWaiting(m *bus.Message) error {
	if m != nil && m.Group != "" {
		return fmt.Errorf("payload %q: %w: a payload of WhenDone cannot have Group", m.PayloadType, bus.ErrInvalidOption)
	}
	return p.check(m, time.Time{})
}
