package outbox

import (
	"errors"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// ErrGroupExists is returned by [Producer.WhenDone] for a group that already has a payload to
// produce.
var ErrGroupExists = errors.New("the group already has a WhenDone payload")

// Group makes the message a member of a group: see [Producer.WhenDone]. A member's consumer finds
// the name in bus.Message.Group and passes it on to messages that belong to the group, too. A
// duplicate that [InsertID] drops does not become a member. A message that replaces a member
// ([Replace]) is a member of its own group only.
//
// A name has 1 to 255 bytes without control characters. Members wait to be claimed:
// [Producer.RunInTx] does not start them at once.
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

// IfPoisoned produces another payload instead, with its own options, if no member of the group is
// pending any more and at least one is poisoned. Without it the group waits until its poisoned
// members are requeued or discarded.
func IfPoisoned(payload bus.Payload, options ...Option) WhenDoneOption {
	return ifPoisoned{Item{Payload: payload, Options: options}}
}

// itemsOf returns the name of a group, and what is produced at its end.
func itemsOf(group Option, payload bus.Payload, options []WhenDoneOption) (name string, done Item, poisoned *Item, err error) {
	name, err = nameOf(group)
	w := whenDone{done: Item{Payload: payload}}
	for i, option := range options {
		if option == nil {
			err = errors.Join(err, fmt.Errorf("%w: option %d is nil", bus.ErrInvalidOption, i))
			continue
		}
		err = errors.Join(err, option.applyTo(&w))
	}
	return name, w.done, w.poisoned, err
}

// Package bustest calls it.
var _ = hooks.Provide(hooks.Functions{"outbox.WhenDone": itemsOf})

// nameOf returns the name in the option of Group.
func nameOf(group Option) (string, error) {
	var m bus.Message
	if group != nil {
		if err := group(&m); err != nil {
			return "", err
		}
	}
	if m.Group == "" {
		return "", fmt.Errorf("%w: the group must be an option made by outbox.Group", bus.ErrInvalidOption)
	}
	return m.Group, nil
}
