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

// Events say what they are, the registry is told of them, and the log is made of
// that.
func ExampleNew() {
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
	_, names := log.Types().Lookup("account.opened")
	fmt.Println(names, err)
	// Output: [account.opened] <nil>
}

// Schema 1 of a deposit was in whole units, and the event had another name. An
// upcaster brings what is stored up to date whenever it is read.
func ExampleEvent() {
	inCents := func(_ context.Context, text []byte) ([]byte, error) {
		var old struct{ Amount int }
		if err := json.Unmarshal(text, &old); err != nil {
			return nil, err
		}
		return json.Marshal(Deposited{Cents: 100 * old.Amount})
	}
	types, err := eventlog.NewTypes(
		eventlog.Event[Deposited](eventlog.Schema(2), eventlog.Upcaster(1, inCents), eventlog.PayloadAliases("account.paid_in")))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := types.Upcast(context.Background(), "account.paid_in", 1, []byte(`{"amount": 7}`))
	fmt.Println(string(text), err)
	// Output: {"cents":700} <nil>
}

// Mistakes are found when the application starts.
func ExampleNewTypes_mistakes() {
	_, err := eventlog.NewTypes(eventlog.Event[Deposited](eventlog.Schema(2)),
		eventlog.Event[Opened](eventlog.PayloadAliases("account.deposited")))
	fmt.Println(err)
	// Output:
	// eventlog: event "account.deposited": Schema is 2, but there is no Upcaster(1, ...)
	// eventlog: event eventlog_test.Opened: the name "account.deposited" is taken by eventlog_test.Deposited
}

// Append what has happened, on the condition that nothing else has. Rows of the
// application may be written in the same transaction.
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

// A transfer is appended to both accounts or to none.
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

// The state of a stream is a fold of its events. Package decider does this, and
// the append at that version, by itself.
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

// Where no runner of projections numbers the events, do so before reading.
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

// A consumer that is new, or was wrong, is given what there was before. To call it
// again under the same name goes on where it was interrupted.
func ExampleLog_Replay() {
	var (
		ctx = context.Background()
		db  *bun.DB // opened by the application
		log *eventlog.Log
	)
	n, err := log.Replay(ctx, db, eventlog.Replay{Name: "welcome-2031", Consumer: "welcome", Rate: 100})
	fmt.Println(n, "messages written", err)
}

// What is known of a person is erased from the log, and projections hear of it by
// an event of type Tombstoned.
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
