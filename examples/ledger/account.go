package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
)

// Event is what can happen to an account.
type Event interface {
	bus.Payload
	amount() int // by which the balance changes
}

// Opened is the first event of an account.
type Opened struct {
	Owner string `json:"owner"`
}

// Deposited is money that came in.
type Deposited struct {
	Amount int `json:"amount"`
}

// Withdrawn is money that went out.
type Withdrawn struct {
	Amount int `json:"amount"`
}

// TransferSent is money on its way to another account.
type TransferSent struct {
	To     string `json:"to"`
	Amount int    `json:"amount"`
}

// TransferReceived is money from another account.
type TransferReceived struct {
	From   string `json:"from"`
	Amount int    `json:"amount"`
}

// PayloadType and its likes are the names under which events are stored.
func (Opened) PayloadType() string           { return "account.opened" }
func (Deposited) PayloadType() string        { return "account.deposited" }
func (Withdrawn) PayloadType() string        { return "account.withdrawn" }
func (TransferSent) PayloadType() string     { return "account.transfer_sent" }
func (TransferReceived) PayloadType() string { return "account.transfer_received" }

func (Opened) amount() int             { return 0 }
func (e Deposited) amount() int        { return e.Amount }
func (e Withdrawn) amount() int        { return -e.Amount }
func (e TransferSent) amount() int     { return -e.Amount }
func (e TransferReceived) amount() int { return e.Amount }

// Account is what decisions are made by.
type Account struct {
	Owner   string `json:"owner"`
	Balance int    `json:"balance"`
}

// Command is what somebody wants of an account: the event that it would be.
type Command struct{ Wish Event }

var (
	errOverdrawn = errors.New("the account would be overdrawn")
	errNotOpen   = errors.New("there is no such account")
)

// snippet: decider

// accounts decides on commands.
func accounts() decider.Decider[Account, Command, Event] {
	return decider.Decider[Account, Command, Event]{
		Category:  "account",
		Snapshots: decider.Snapshots{Every: 50},
		Evolve: func(a Account, e Event) Account {
			if opened, ok := e.(Opened); ok {
				a.Owner = opened.Owner
			}
			a.Balance += e.amount()
			return a
		},
		Decide: func(_ context.Context, a Account, c Command) ([]Event, error) {
			_, opens := c.Wish.(Opened)
			switch {
			case !opens && a.Owner == "":
				return nil, errNotOpen
			case a.Balance+c.Wish.amount() < 0:
				return nil, fmt.Errorf("%w: it has %d", errOverdrawn, a.Balance)
			}
			return []Event{c.Wish}, nil
		},
	}
}

// end

// eventTypes are the events that are stored.
func eventTypes() (*eventlog.Types, error) {
	return eventlog.NewTypes(eventlog.Event[Opened](), eventlog.Event[Deposited](), eventlog.Event[Withdrawn](),
		eventlog.Event[TransferSent](), eventlog.Event[TransferReceived]())
}

// errNoEvent is what a consumer says to a message that was not appended to the log.
var errNoEvent = errors.New("the message has no event")

// snippet: reactor

// receive is the reactor to TransferSent. It deposits the money in the transaction
// that removes the message, so exactly once.
func (b *bank) receive(ctx context.Context, tx bun.Tx, sent TransferSent) error {
	m, ok := bus.MessageFromContext(ctx)
	if !ok || m.Event == nil {
		return errNoEvent
	}
	wish := TransferReceived{From: m.Event.Stream, Amount: sent.Amount}
	_, _, err := decider.Handle(ctx, b.log, tx, accounts(), sent.To, Command{wish})
	return err
}

// end
