package eventlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Opened and Deposited are events: payloads with a stable stored name.
type Opened struct {
	Owner string `json:"owner"`
}

type Deposited struct {
	Cents int `json:"cents"`
}

func (Opened) PayloadType() string    { return "account.opened" }
func (Deposited) PayloadType() string { return "account.deposited" }

// Paid is an event in its second form: it had an Amount.
type Paid Deposited

func (Paid) PayloadType() string { return "account.paid" }

func (Paid) Upcasters() []bus.Upcaster { return []bus.Upcaster{inCents} }

func inCents(_ context.Context, text []byte) ([]byte, error) {
	var old struct{ Amount int }
	if err := json.Unmarshal(text, &old); err != nil {
		return nil, err
	}
	return json.Marshal(Paid{Cents: 100 * old.Amount})
}

// Register the event types, make the registry with them, and make the log of the registry.
func ExampleNewLog() {
	types, err := eventlog.NewTypes(eventlog.Event[Opened](), eventlog.Event[Deposited]())
	if err != nil {
		fmt.Println(err)
		return
	}
	welcome := bus.Consume("welcome", func(ctx context.Context, e Opened) error {
		m, _ := bus.MessageFromContext(ctx)
		fmt.Println("welcome", e.Owner, "to", m.Event.Stream)
		return nil
	})
	registry, err := bus.RegistryConfig{Events: types}.NewRegistry(welcome)
	if err != nil {
		fmt.Println(err)
		return
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	log, err := eventlog.NewLog(registry, producer, eventlog.LogConfig{})
	fmt.Println(log != nil, err)
	// Output: true <nil>
}

// Payments of schema 1 were in whole units and had another name. The upcaster converts them
// whenever they are read.
func ExampleEvent() {
	types, err := eventlog.NewTypes(eventlog.Event[Paid]("account.paid_in"))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := types.Upcast(context.Background(), "account.paid_in", 1, []byte(`{"amount": 7}`))
	fmt.Println(string(text), err)
	// Output: {"cents":700} <nil>
}

// NewTypes reports configuration errors at startup.
func ExampleNewTypes_mistakes() {
	_, err := eventlog.NewTypes(eventlog.Event[Deposited](), eventlog.Event[Opened]("account.deposited"))
	fmt.Println(err)
	// Output:
	// eventlog: event eventlog_test.Opened: the name "account.deposited" is taken by eventlog_test.Deposited
}

// Append an event if the stream has the expected version. The transaction may write other rows,
// too.
func ExampleLog_Append() {
	var (
		ctx = context.Background()
		db  *bun.DB // opened by the application
		log *eventlog.Log
	)
	err := log.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		appended, err := log.Append(ctx, tx, "account-42", eventlog.NoStream, Opened{Owner: "ann"}, Deposited{Cents: 700})
		fmt.Println(appended.Version, err) // 2 <nil>
		return err
	})
	if conflict, ok := errors.AsType[*eventlog.ConflictError](err); ok {
		fmt.Println("there is such an account, with", conflict.Actual, "events")
	}
}

// A transfer is appended to both accounts or to neither.
func ExampleLog_AppendAll() {
	var (
		ctx = context.Background()
		tx  bun.Tx // begun by the application
		log *eventlog.Log
	)
	_, err := log.AppendAll(ctx, tx,
		eventlog.Write{Stream: "account-1", Expected: 7, Events: []bus.Payload{Deposited{Cents: -500}}},
		eventlog.Write{Stream: "account-2", Expected: eventlog.StreamExists, Events: []bus.Payload{Deposited{Cents: 500}}})
	fmt.Println(err)
}

// Fold the events of a stream into a state, and append at its version. Package decider does both.
func ExampleLog_FoldStream() {
	var (
		ctx = context.Background()
		db  *bun.DB // opened by the application
		log *eventlog.Log
	)
	balance := 0
	version, err := log.FoldStream(ctx, db, "account-42", 0, func(e eventlog.RecordedEvent) error {
		if d, ok := e.Data.(Deposited); ok {
			balance += d.Cents
		}
		return nil
	})
	fmt.Println(balance, version, err)
}

// Assign positions before reading if no projection runner does.
func ExampleLog_ReadLog() {
	var (
		ctx = context.Background()
		db  *bun.DB // opened by the application
		log *eventlog.Log
	)
	if _, err := log.AssignPositions(ctx, db); err != nil {
		fmt.Println(err)
		return
	}
	for e, err := range log.ReadLog(ctx, db, 0, eventlog.Filter{Categories: []string{"account"}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.Position, e.Stream, e.Version, e.Data)
	}
}

// Replay delivers earlier events to a new or corrected consumer. A call with the same name
// continues an interrupted replay.
func ExampleLog_Replay() {
	var (
		ctx = context.Background()
		db  *bun.DB // opened by the application
		log *eventlog.Log
	)
	n, err := log.Replay(ctx, db, eventlog.Replay{Name: "welcome-2031", Consumer: "welcome", Rate: 100})
	fmt.Println(n, "messages written", err)
}

// Erase a stream. Projections learn of it by an event of type Tombstoned.
func ExampleLog_Tombstone() {
	var (
		ctx = context.Background()
		db  *bun.DB // opened by the application
		log *eventlog.Log
	)
	err := log.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		return log.Tombstone(ctx, tx, "account-42")
	})
	fmt.Println(err)
}
