package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// ErrGroupExists is returned by [Producer.WhenDone] for a group that already has a payload to
// produce.
var ErrGroupExists = errors.New("the group has a payload of WhenDone already")

// Group makes the message a member of a group: see [Producer.WhenDone]. A member's consumer finds the
// name in bus.Message.Group and passes it on to messages that belong to the group, too. A message that
// [InsertID] leaves out is no member; one that replaces a member joins its own group instead.
//
// A name has 1 to 255 bytes without control characters. Messages of a group are not handed off at
// commit: they wait to be claimed.
func Group(name string) Option {
	return func(m *bus.Message) error {
		if err := limits.CheckName(name); err != nil {
			return fmt.Errorf("%w: the name of the group %w", bus.ErrInvalidOption, err)
		}
		m.Group = name
		return nil
	}
}

// WhenDoneOption is an option of [Producer.WhenDone]: [IfPoisoned], or an [Option] of its payload.
type WhenDoneOption interface{ applyTo(w *whenDone) error }

// whenDone is what WhenDone produces.
type whenDone struct {
	done     Item
	poisoned *Item
}

func (o Option) applyTo(w *whenDone) error {
	w.done.Options = append(w.done.Options, o)
	return nil
}

type ifPoisoned struct{ item Item }

func (i ifPoisoned) applyTo(w *whenDone) error {
	if w.poisoned != nil {
		return fmt.Errorf("%w: IfPoisoned is given twice", bus.ErrInvalidOption)
	}
	w.poisoned = &i.item
	return nil
}

// IfPoisoned produces another payload, with its own options, if a member of the group is poisoned once
// none is pending. Without it the group waits until its poisoned members are requeued or discarded.
func IfPoisoned(payload bus.Payload, options ...Option) WhenDoneOption {
	return ifPoisoned{Item{Payload: payload, Options: options}}
}

// WhenDone produces the payload once no member of the group is pending: each one was consumed,
// discarded, cancelled or deleted. A group without members is done at once. group is the option of
// [Group]. The call is part of the transaction db, as with [Producer.Produce], whose checks and errors
// it has. A second call for a group that is not done is an [ErrGroupExists]; a name can be used again
// afterwards.
//
// The payload passes through the produce chain now, and is written for its consumers by a
// [Processor] when the group is done, exactly once. A delay counts from then. The payload cannot be a
// member of a group.
//
// Members join before WhenDone or in its transaction, or are produced by members. Others that join
// while the group waits delay it, too; one that comes too late belongs to the next use of the name.
func (p *Producer) WhenDone(ctx context.Context, db bus.Handle, group Option, payload bus.Payload, options ...WhenDoneOption) error {
	if p == nil || p.registry == nil {
		return fmt.Errorf("outbox: when done: %w", errUnmade)
	}
	name, err := nameOf(group)
	w := whenDone{done: Item{Payload: payload}}
	for i, option := range options {
		if option == nil {
			err = errors.Join(err, fmt.Errorf("%w: option %d is nil", bus.ErrInvalidOption, i))
			continue
		}
		err = errors.Join(err, option.applyTo(&w))
	}
	if err == nil {
		err = p.whenDone(ctx, db, name, w)
	}
	if err != nil {
		return fmt.Errorf("outbox: when done: %w", err)
	}
	return nil
}

// nameOf returns the name in the option of Group.
func nameOf(group Option) (string, error) {
	var m bus.Message
	if group != nil {
		if err := group(&m); err != nil {
			return "", err
		}
	}
	if m.Group == "" {
		return "", fmt.Errorf("%w: the group is not an option that Group returns", bus.ErrInvalidOption)
	}
	return m.Group, nil
}

func (p *Producer) whenDone(ctx context.Context, h bus.Handle, name string, w whenDone) error {
	g := store.MessageGroup{Name: name}
	var err error
	if g.Messages, err = p.waiting(ctx, w.done); err != nil {
		return err
	}
	if w.poisoned != nil {
		if g.Poisoned, err = p.waiting(ctx, *w.poisoned); err != nil {
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
		return fmt.Errorf("payload %q: %w: what WhenDone produces cannot have Group", m.PayloadType, bus.ErrInvalidOption)
	}
	return p.check(m, time.Time{})
}
