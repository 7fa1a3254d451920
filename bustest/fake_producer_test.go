package bustest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/schema"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// producing has the methods of the real type.
type producing interface {
	Produce(ctx context.Context, db bus.Handle, payload bus.Payload, options ...outbox.Option) (outbox.Receipt, error)
	ProduceMany(ctx context.Context, db bus.Handle, items ...outbox.Item) ([]outbox.Receipt, error)
	Send(ctx context.Context, db bun.IDB, batch ...*bus.Message) error
	WhenDone(ctx context.Context, db bus.Handle, group outbox.Option, payload bus.Payload, options ...outbox.WhenDoneOption) error
	RunInTx(ctx context.Context, db *bun.DB, fn func(ctx context.Context, tx bun.Tx) error) error
}

var _ = []producing{(*outbox.Producer)(nil), (*bustest.FakeProducer)(nil)}

func TestFakeProducerNotesWhatIsProduced(t *testing.T) {
	t.Parallel()
	p := &bustest.FakeProducer{Registry: newRegistry(t)}
	at := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	first, err := p.Produce(t.Context(), nil, orderPlaced{"1"}, outbox.Delay(time.Minute), outbox.Header("tenant", "acme"))
	if err != nil {
		t.Fatal(err)
	}
	if first.Enqueued != 2 || first.Duplicates != 0 || first.MessageID.String() != "00000000-0000-7000-8000-000000000001" {
		t.Errorf("receipt: got %+v, want the first id and two consumers", first)
	}
	if _, err := p.ProduceMany(t.Context(), nil, outbox.Item{Payload: orderPlaced{"2"}, Options: []outbox.Option{outbox.AvailableAt(at)}},
		outbox.Item{Payload: orderPlaced{"3"}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(t.Context(), nil, &bus.Message{PayloadType: "order.placed", Payload: []byte(`{"id":"4"}`)}); err != nil {
		t.Fatal(err)
	}
	if got, want := bustest.Payloads[orderPlaced](t, p), []orderPlaced{{"1"}, {"2"}, {"3"}, {"4"}}; !slices.Equal(got, want) {
		t.Errorf("payloads: got %v, want %v", got, want)
	}
	m := bustest.RequireProduced(t, p, func(o orderPlaced) bool { return o.ID == "1" })
	if m.ID != first.MessageID || m.Delay != time.Minute || m.Headers["tenant"] != "acme" || m.Value != (orderPlaced{"1"}) {
		t.Errorf("message: got %+v, want the id, delay, header and value", m)
	}
	if m := bustest.RequireProduced(t, p, func(o orderPlaced) bool { return o.ID == "2" }); !m.AvailableAt.Equal(at) {
		t.Errorf("available at: got %s, want %s", m.AvailableAt, at)
	}
}

func TestFakeProducerTreatsGroupsAsDone(t *testing.T) {
	t.Parallel()
	p := new(bustest.FakeProducer)
	all := outbox.Group("order:1")
	if _, err := p.Produce(t.Context(), nil, orderPlaced{"1"}, all); err != nil {
		t.Fatal(err)
	}
	if err := p.WhenDone(t.Context(), nil, all, orderPlaced{"2"}, outbox.Header("a", "b"), outbox.IfPoisoned(orderPlaced{"3"})); err != nil {
		t.Fatal(err)
	}
	if err := p.WhenDone(t.Context(), nil, outbox.Delay(1), orderPlaced{"4"}); !errors.Is(err, bus.ErrInvalidOption) {
		t.Errorf("without a group: got %v, want %v", err, bus.ErrInvalidOption)
	}
	if err := p.WhenDone(t.Context(), nil, all, orderPlaced{"4"}, all); !errors.Is(err, bus.ErrInvalidOption) {
		t.Errorf("a group of the payload: got %v, want %v", err, bus.ErrInvalidOption)
	}
	if got, want := bustest.Payloads[orderPlaced](t, p), []orderPlaced{{"1"}, {"2"}}; !slices.Equal(got, want) {
		t.Errorf("payloads: got %v, want %v", got, want)
	}
	bustest.RequireProduced(t, p, func(o orderPlaced) bool { return o.ID == "2" })
}

func TestFakeProducerCountsDuplicates(t *testing.T) {
	t.Parallel()
	for name, registry := range map[string]*bus.Registry{"with a registry": newRegistry(t), "without": nil} {
		p := &bustest.FakeProducer{Registry: registry}
		for i, want := range []outbox.Receipt{{Enqueued: 1}, {Duplicates: 1}} {
			if registry != nil {
				want.Enqueued, want.Duplicates = 2*want.Enqueued, 2*want.Duplicates
			}
			got, err := p.Produce(t.Context(), nil, orderPlaced{"1"}, outbox.InsertID("order:1"))
			if got.MessageID = (uuid.UUID{}); err != nil || got != want {
				t.Errorf("%s, produce %d: got %+v, %v, want %+v", name, i+1, got, err, want)
			}
		}
		if n := len(bustest.Payloads[orderPlaced](t, p)); n != 1 {
			t.Errorf("%s: got %d payloads, want 1", name, n)
		}
	}
}

func TestFakeProducerNotesOnlyWhatIsCommitted(t *testing.T) {
	t.Parallel()
	p := new(bustest.FakeProducer)
	fail := errors.New("no luck")
	for _, want := range []error{fail, nil} {
		err := p.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			receipt, err := p.Produce(ctx, tx, orderPlaced{"1"}, outbox.InsertID("order:1"))
			if err != nil || receipt.Enqueued != 1 {
				t.Errorf("produce in a transaction: got %+v, %v, want it enqueued", receipt, err)
			}
			if again, err := p.Produce(ctx, tx, orderPlaced{"1"}, outbox.InsertID("order:1")); err != nil || again.Duplicates != 1 {
				t.Errorf("produce again in the transaction: got %+v, %v, want a duplicate", again, err)
			}
			bustest.RequireNotProduced[orderPlaced](t, p, nil)
			return want
		})
		if !errors.Is(err, want) {
			t.Errorf("run: got %v, want %v", err, want)
		}
	}
	if got := bustest.Payloads[orderPlaced](t, p); len(got) != 1 {
		t.Errorf("payloads: got %v, want one, of the second run", got)
	}
}

func TestFakeProducerReturnsTheErrorItIsGiven(t *testing.T) {
	t.Parallel()
	fail := errors.New("no luck")
	p := &bustest.FakeProducer{Err: fail}
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, fail) {
			t.Errorf("%s: got %v, want %v", what, err, fail)
		}
	}
	_, err := p.Produce(t.Context(), nil, orderPlaced{})
	check("produce", err)
	check("send", p.Send(t.Context(), nil, &bus.Message{PayloadType: "p", Payload: []byte("{}")}))
	check("run in tx", p.RunInTx(t.Context(), nil, func(context.Context, bun.Tx) error { return nil }))
	bustest.RequireNotProduced[orderPlaced](t, p, nil)
}

// refused are produces that the real producer refuses before any SQL.
func refused() map[string]outbox.Item {
	with := func(options ...outbox.Option) outbox.Item {
		return outbox.Item{Payload: orderPlaced{"1"}, Options: options}
	}
	return map[string]outbox.Item{
		"a payload nobody consumes": {Payload: orderShipped{"1"}},
		"no payload":                {},
		"a pointer":                 {Payload: &orderPlaced{"1"}},
		"a payload too large":       {Payload: orderPlaced{strings.Repeat("x", limits.Payload)}},
		"an option that is nil":     with(nil),
		"a negative delay":          with(outbox.Delay(-1)),
		"a delay and an instant":    with(outbox.Delay(1), outbox.AvailableAt(time.Now())),
		"a year beyond all":         with(outbox.AvailableAt(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))),
		"an insert id with a NUL":   with(outbox.InsertID("a\x00b")),
		"an insert id too long":     with(outbox.InsertID(strings.Repeat("x", limits.Key+1))),
		"a header without a name":   with(outbox.Header("", "x")),
		"headers too large":         with(outbox.Header("h", strings.Repeat("x", limits.Headers))),
		"a header of bad UTF-8":     with(outbox.Header("h", "\xff")),
	}
}

func TestFakeProducerRefusesWhatTheRealOneRefuses(t *testing.T) {
	t.Parallel()
	registry := newRegistry(t)
	// A handle that cannot be used: what the real one refuses, it refuses before.
	real, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	fake, free := &bustest.FakeProducer{Registry: registry}, new(bustest.FakeProducer)
	for name, item := range refused() {
		_, want := real.Produce(t.Context(), unused{}, item.Payload, item.Options...)
		if _, got := fake.Produce(t.Context(), nil, item.Payload, item.Options...); want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("%s: got %v, want the real producer's error: %v", name, got, want)
		}
		_, err := free.Produce(t.Context(), nil, item.Payload, item.Options...)
		if known := name == "a payload nobody consumes"; (err == nil) != known {
			t.Errorf("%s, without a registry: got %v, want an error: %t", name, err, !known)
		}
	}
	for name, m := range map[string]*bus.Message{"nil": nil, "nobody's": {PayloadType: "order.shipped", Payload: []byte("{}")},
		"too large": {PayloadType: "order.placed", Payload: make([]byte, 2<<20)}} {
		want := real.Send(t.Context(), unused{}, m)
		if got := fake.Send(t.Context(), nil, m); want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("send of a message that is %s: got %v, want the real producer's error: %v", name, got, want)
		}
	}
	bustest.RequireNotProduced[orderPlaced](t, fake, nil)
}

// unused is a database handle without a database.
type unused struct{ bun.IDB }

func (unused) Dialect() schema.Dialect { return pgdialect.New() }

func TestFakeProducerIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	p := &bustest.FakeProducer{IDs: bustest.SequentialIDs()}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 50 {
				if _, err := p.Produce(t.Context(), nil, orderPlaced{"1"}); err != nil {
					t.Errorf("produce: %v", err)
				}
				bustest.RequireProduced[orderPlaced](t, p, nil)
			}
		})
	}
	callers.Wait()
	if n := len(bustest.Payloads[orderPlaced](t, p)); n != 400 {
		t.Errorf("got %d payloads, want 400", n)
	}
}

func TestSequentialIDs(t *testing.T) {
	t.Parallel()
	next := bustest.SequentialIDs()
	for _, want := range []string{"00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"} {
		if got := next().String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := bustest.SequentialIDs()().String(); got != "00000000-0000-7000-8000-000000000001" {
		t.Errorf("a second function: got %s, want it to start anew", got)
	}
}

// TestFakeProducerHonoursTheContext as a database would.
func TestFakeProducerHonoursTheContext(t *testing.T) {
	t.Parallel()
	producer := new(bustest.FakeProducer)
	ctx, cancel := context.WithCancel(t.Context())
	inTx := producer.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := producer.Produce(ctx, tx, orderPlaced{ID: "in a transaction"}); err != nil {
			return err
		}
		cancel() // before the commit
		return nil
	})
	_, produced := producer.Produce(ctx, nil, orderPlaced{})
	for what, err := range map[string]error{
		"commit": inTx, "produce": produced, "send": producer.Send(ctx, nil, &bus.Message{}),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want the context's error", what, err)
		}
	}
	bustest.RequireNotProduced[orderPlaced](t, producer, nil)
}

func TestFakeProducerKnowsItsTransaction(t *testing.T) {
	t.Parallel()
	p := new(bustest.FakeProducer)
	err := p.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := p.Produce(ctx, new(bun.DB), orderPlaced{"1"}); !errors.Is(err, outbox.ErrNotInTx) {
			t.Errorf("produce past the transaction: got %v, want ErrNotInTx", err)
		}
		if err := p.Send(ctx, new(bun.DB)); !errors.Is(err, outbox.ErrNotInTx) {
			t.Errorf("send past the transaction: got %v, want ErrNotInTx", err)
		}
		if err := p.RunInTx(ctx, nil, func(context.Context, bun.Tx) error { return nil }); !errors.Is(err, outbox.ErrNotInTx) {
			t.Errorf("a transaction within: got %v, want ErrNotInTx", err)
		}
		_, err := p.Produce(ctx, tx, orderPlaced{"2"})
		return err
	})
	if got := bustest.Payloads[orderPlaced](t, p); err != nil || len(got) != 1 {
		t.Errorf("got %v and %v, want the payload of the transaction", got, err)
	}
}

// moved is a payload without a key.
type moved struct{ To string }

func (moved) PayloadType() string { return "moved" }

func TestFakeProducerKnowsKeys(t *testing.T) {
	t.Parallel()
	registry, err := bus.NewRegistry(bus.Consume("c", func(context.Context, moved) error { return nil }, bus.Ordered(bus.BlockKey)))
	if err != nil {
		t.Fatal(err)
	}
	p := &bustest.FakeProducer{Registry: registry}
	if _, err := p.Produce(t.Context(), nil, moved{"x"}); !errors.Is(err, bus.ErrNoKey) {
		t.Errorf("without a key: got %v, want %v", err, bus.ErrNoKey)
	}
	if _, err := p.Produce(t.Context(), nil, moved{"x"}, outbox.OrderingKey("k"), outbox.Priority(bus.High)); err != nil {
		t.Fatal(err)
	}
	if m := bustest.RequireProduced[moved](t, p, nil); m.OrderingKey != "k" || m.Priority != bus.High {
		t.Errorf("message: got %+v, want the key and the priority", m)
	}
}
