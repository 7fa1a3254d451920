package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// producer is what this code needs of *outbox.Producer.
type producer interface {
	Produce(ctx context.Context, db bus.Handle, payload bus.Payload, options ...outbox.Option) (outbox.Receipt, error)
}

// remind produces a payload for later. It is the code under test.
func remind(ctx context.Context, db bun.IDB, p producer, order string) error {
	_, err := p.Produce(ctx, db, orderShipped{ID: order}, outbox.Delay(24*time.Hour))
	return err
}

// exampleT stands for the *testing.T that examples do not have.
type exampleT struct{ testing.TB }

func (exampleT) Helper()           {}
func (exampleT) Output() io.Writer { return io.Discard }

func (exampleT) Context() context.Context { return ctx }

func (exampleT) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

var (
	t   testing.TB = exampleT{}           // that of your test
	ctx            = context.Background() // t.Context() in a test
)

func ExampleFakeProducer() {
	// snippet: fake
	p := new(bustest.FakeProducer)
	if err := remind(ctx, nil, p, "o-1"); err != nil { // no database needed
		t.Fatalf("remind: %v", err)
	}
	m := bustest.RequireProduced(t, p, func(e orderShipped) bool { return e.ID == "o-1" })
	// end
	fmt.Printf("%s %s in %s\n", m.PayloadType, m.Payload, m.Delay)

	failing := &bustest.FakeProducer{Err: errors.New("database is down")}
	fmt.Println(remind(ctx, nil, failing, "o-1"))
	// Output:
	// order.shipped {"id":"o-1"} in 24h0m0s
	// outbox: produce: database is down
}

func ExampleSequentialIDs() {
	next := bustest.SequentialIDs()
	fmt.Println(next())
	fmt.Println(next())
	// Output:
	// 00000000-0000-7000-8000-000000000001
	// 00000000-0000-7000-8000-000000000002
}

func ExampleRequireProduced() {
	p := new(bustest.FakeProducer) // or a Kit, or a transaction by Kit.In
	_ = remind(ctx, nil, p, "o-1")
	bustest.RequireProduced[orderShipped](t, p, nil) // any
	m := bustest.RequireProduced(t, p, func(e orderShipped) bool { return e.ID == "o-1" })
	fmt.Println(m.Value)
	// Output: {o-1}
}

func ExampleRequireNotProduced() {
	p := new(bustest.FakeProducer)
	_ = remind(ctx, nil, p, "o-1")
	bustest.RequireNotProduced[orderPlaced](t, p, nil)
	bustest.RequireNotProduced(t, p, func(e orderShipped) bool { return e.ID == "o-2" })
	fmt.Println("neither was produced")
	// Output: neither was produced
}

func ExamplePayloads() {
	p := new(bustest.FakeProducer)
	_ = remind(ctx, nil, p, "o-1")
	_ = remind(ctx, nil, p, "o-2")
	fmt.Println(bustest.Payloads[orderShipped](t, p))
	// Output: [{o-1} {o-2}]
}

type accountOpened struct{ Owner string }

type cardCharged struct{ Cents int }

func (accountOpened) PayloadType() string { return "account.opened" }
func (cardCharged) PayloadType() string   { return "account.charged" }

var errClosed = errors.New("the account is not open")

// Given these events, when this command comes, then these events happen.
func ExampleDecider() {
	accounts := decider.Decider[bool, int, bus.Payload]{
		Category: "account",
		Evolve:   func(bool, bus.Payload) bool { return true },
		Decide: func(_ context.Context, open bool, cents int) ([]bus.Payload, error) {
			if !open {
				return nil, errClosed
			}
			return []bus.Payload{cardCharged{cents}}, nil
		},
	}
	bustest.Decider(t, accounts).Given(accountOpened{"ann"}).When(5).Then(cardCharged{5})
	bustest.Decider(t, accounts).When(5).ThenError(errClosed)
	// Output:
}
