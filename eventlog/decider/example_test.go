package decider_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
)

type Deposited struct{ Cents int }

type Withdrawn struct{ Cents int }

func (Deposited) PayloadType() string { return "account.deposited" }
func (Withdrawn) PayloadType() string { return "account.withdrawn" }

// Account is the state by which is decided; Withdraw is a command.
type Account struct{ Cents int }

type Withdraw struct{ Cents int }

var errOverdrawn = errors.New("the account would be overdrawn")

func accounts() decider.Decider[Account, Withdraw, bus.Payload] {
	return decider.Decider[Account, Withdraw, bus.Payload]{
		Category: "account",
		Evolve: func(a Account, event bus.Payload) Account {
			switch e := event.(type) {
			case Deposited:
				a.Cents += e.Cents
			case Withdrawn:
				a.Cents -= e.Cents
			}
			return a
		},
		Decide: func(_ context.Context, a Account, c Withdraw) ([]bus.Payload, error) {
			if c.Cents > a.Cents {
				return nil, fmt.Errorf("%w: it has %d", errOverdrawn, a.Cents)
			}
			return []bus.Payload{Withdrawn(c)}, nil
		},
	}
}

// A decider needs no database. Test it with bustest.Decider.
func ExampleDecider() {
	d := accounts()
	state := d.Evolve(Account{}, Deposited{Cents: 100})
	events, err := d.Decide(context.Background(), state, Withdraw{Cents: 60})
	fmt.Println(d.Stream("42"), events, err)
	_, err = d.Decide(context.Background(), d.Evolve(state, events[0]), Withdraw{Cents: 60})
	fmt.Println(err)
	// Output:
	// account-42 [{60}] <nil>
	// the account would be overdrawn: it has 40
}

// Execute begins its own transaction, for callers such as HTTP handlers.
func ExampleExecute() {
	var (
		ctx = context.Background()
		db  *bun.DB // opened by the application
		log *eventlog.Log
	)
	state, appended, err := decider.Execute(ctx, log, db, accounts(), "42", Withdraw{Cents: 60})
	switch {
	case errors.Is(err, errOverdrawn):
		fmt.Println("no:", err)
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println(state.Cents, "left, by event", appended.Version)
	}
}

// Handle uses the caller's transaction: here that of a transactional consumer, which also removes
// the message.
func ExampleHandle() {
	var log *eventlog.Log
	chargeFee := func(ctx context.Context, tx bun.Tx, e Withdrawn) error {
		_, _, err := decider.Handle(ctx, log, tx, accounts(), "fees", Withdraw{Cents: e.Cents / 100})
		return err
	}
	fmt.Printf("%T", chargeFee)
	// Output: func(context.Context, bun.Tx, decider_test.Withdrawn) error
}

// Store a snapshot every 200 events. Raise Schema when the state or Evolve changes.
func ExampleSnapshots() {
	d := accounts()
	d.Snapshots = decider.Snapshots{Every: 200, Schema: 2}
	fmt.Printf("%+v", d.Snapshots)
	// Output: {Every:200 Schema:2}
}
