package bus_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// A payload is a plain struct with a stable name of its own.
type InvoiceDue struct {
	Number   int    `json:"number"`
	Customer string `json:"customer"`
}

// PayloadType is what is stored: renaming the Go type changes nothing.
func (InvoiceDue) PayloadType() string { return "invoice.due" }

type Mailer struct{ From string }

func (m *Mailer) SendInvoice(_ context.Context, e InvoiceDue) error {
	fmt.Printf("%s mails invoice %d to %s\n", m.From, e.Number, e.Customer)
	return nil
}

func BookInvoice(context.Context, InvoiceDue) error { return nil }

func ExampleNewRegistry() {
	mailer := &Mailer{From: "billing@example.com"}
	registry, err := bus.NewRegistry(
		bus.Consume("send-invoice", mailer.SendInvoice, bus.Timeout(5*time.Second), bus.MaxAttempts(3)),
		bus.Consume("book-invoice", BookInvoice, bus.Aliases("ledger")),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, consumer := range registry.Consumers() {
		fmt.Println(consumer.Name())
	}
	renamed, _ := registry.Consumer("ledger")
	fmt.Println("ledger is now", renamed.Name())
	// Output:
	// book-invoice
	// send-invoice
	// ledger is now book-invoice
}

// NewRegistry reports all mistakes at once.
func ExampleNewRegistry_mistakes() {
	_, err := bus.NewRegistry(
		bus.Consume("book-invoice", BookInvoice),
		bus.Consume("book-invoice", BookInvoice),
		bus.Consume[*InvoiceDue]("send-invoice", nil),
	)
	fmt.Println(err)
	// Output:
	// bus: consumer "book-invoice" is registered twice
	// bus: consumer "send-invoice": payload *bus_test.InvoiceDue is a pointer: register and produce the struct itself
	// bus: consumer "send-invoice": the function is nil
}

// A consumer is any func(context.Context, T) error, such as a method value with its dependencies.
func ExampleConsume() {
	mailer := &Mailer{From: "billing@example.com"}
	consumer := bus.Consume("send-invoice", mailer.SendInvoice)

	fmt.Println(consumer.Name(), "consumes", consumer.PayloadType())
	// The processor does this for every message:
	err := consumer.Consume(context.Background(), bus.JSON{}, []byte(`{"number": 17, "customer": "Ada"}`))
	fmt.Println(err)
	// Output:
	// send-invoice consumes invoice.due
	// billing@example.com mails invoice 17 to Ada
	// <nil>
}

var errNoMailbox = errors.New("no such mailbox")

func ExamplePermanent() {
	send := func(context.Context, InvoiceDue) error {
		return bus.Permanent(fmt.Errorf("mail invoice: %w", errNoMailbox))
	}
	err := send(context.Background(), InvoiceDue{})
	verdict := bus.OutcomeOf(err)
	fmt.Println(verdict.Outcome, "because of a", verdict.Reason)
	fmt.Println(err, errors.Is(err, errNoMailbox))
	// Output:
	// condemned because of a permanent error
	// mail invoice: no such mailbox true
}

func ExampleRetryAfter() {
	send := func(context.Context, InvoiceDue) error {
		return bus.RetryAfter(90*time.Second, errors.New("too many mails, come back later"))
	}
	verdict := bus.OutcomeOf(send(context.Background(), InvoiceDue{}))
	fmt.Println(verdict.Outcome, "in", verdict.Delay)
	// Output: retried in 1m30s
}

func ExampleSnooze() {
	send := func(context.Context, InvoiceDue) error {
		return bus.Snooze(8 * time.Hour) // not at night; this costs no attempt
	}
	verdict := bus.OutcomeOf(send(context.Background(), InvoiceDue{}))
	fmt.Println(verdict.Outcome, "for", verdict.Delay)
	// Output: snoozed for 8h0m0s
}

func ExampleDiscard() {
	send := func(context.Context, InvoiceDue) error {
		return bus.Discard(errors.New("the customer is gone"))
	}
	verdict := bus.OutcomeOf(send(context.Background(), InvoiceDue{}))
	fmt.Println(verdict.Outcome, "because", verdict.Err)
	// Output: discarded because the customer is gone
}

// A middleware wraps a handler, as in net/http. The first one listed is the
// outermost.
func ExampleCompose() {
	announce := func(name string) bus.Middleware {
		return func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				fmt.Println("enter", name)
				defer fmt.Println("leave", name)
				return next(ctx, m)
			}
		}
	}
	handler := bus.Compose(func(_ context.Context, m *bus.Message) error {
		fmt.Println("handle", m.PayloadType)
		return nil
	}, announce("outer"), announce("inner"))

	_ = handler(context.Background(), &bus.Message{PayloadType: "invoice.due"})
	// Output:
	// enter outer
	// enter inner
	// handle invoice.due
	// leave inner
	// leave outer
}

// This layer of the produce chain adds a header to every message.
func ExamplePerMessage() {
	type tenantKey struct{}
	stamp := bus.PerMessage(func(ctx context.Context, m *bus.Message) error {
		tenant, ok := ctx.Value(tenantKey{}).(string)
		if !ok {
			return errors.New("no tenant in the context")
		}
		if m.Headers == nil {
			m.Headers = make(map[string]string)
		}
		m.Headers["tenant"] = tenant
		return nil
	})
	send := stamp(func(_ context.Context, b *bus.Batch) error {
		for _, m := range b.Messages {
			fmt.Println(m.PayloadType, m.Headers["tenant"])
		}
		return nil
	})

	batch := &bus.Batch{Messages: []*bus.Message{{PayloadType: "invoice.due"}, {PayloadType: "invoice.paid"}}}
	fmt.Println(send(context.WithValue(context.Background(), tenantKey{}, "acme"), batch))
	fmt.Println(send(context.Background(), batch))
	// Output:
	// invoice.due acme
	// invoice.paid acme
	// <nil>
	// no tenant in the context
}

// A handler gets the message of its payload from the context: the id, the attempt, the headers.
func ExampleMessageFromContext() {
	send := func(ctx context.Context, e InvoiceDue) error {
		if m, ok := bus.MessageFromContext(ctx); ok {
			fmt.Printf("attempt %d for %s, idempotency key %s\n", m.Attempt, m.Headers["tenant"], m.ID)
		}
		return nil
	}
	// The processor does this for every message; a test of a handler can, too.
	id, _ := uuid.Parse("0198c2f4-5f6e-7abc-8def-0123456789ab")
	ctx := bus.ContextWithMessage(context.Background(), &bus.Message{ID: id, Attempt: 2, Headers: map[string]string{"tenant": "acme"}})
	_ = send(ctx, InvoiceDue{Number: 17})
	// Output: attempt 2 for acme, idempotency key 0198c2f4-5f6e-7abc-8def-0123456789ab
}
