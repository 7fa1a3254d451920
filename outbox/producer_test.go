package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// fixedCodec encodes to whatever it is told.
type fixedCodec struct {
	text string
	err  error
}

func (c fixedCodec) Encode(any) ([]byte, error) { return []byte(c.text), c.err }
func (c fixedCodec) Decode([]byte, any) error   { return nil }

func TestBadInputIsRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	noCodec := errors.New("no codec")
	tests := []struct {
		name    string
		payload bus.Payload
		options []outbox.Option
		codec   bus.Codec
		want    error
		text    string
	}{
		{"no consumer", orphan{}, nil, nil, bus.ErrNoConsumer, `payload "orphan" (outbox_test.orphan)`},
		{"nil payload", nil, nil, nil, bus.ErrInvalidPayload, "it is nil"},
		{"pointer payload", &order{}, nil, nil, bus.ErrInvalidPayload, "*outbox_test.order"},
		{"nil pointer payload", (*order)(nil), nil, nil, bus.ErrInvalidPayload, "*outbox_test.order"},
		{"payload too large", order{}, nil, fixedCodec{text: strings.Repeat("x", 1<<20+1)}, bus.ErrTooLarge, "1048577 bytes, at most 1048576"},
		{"payload with a NUL byte", order{}, nil, fixedCodec{text: "a\x00b"}, bus.ErrInvalidText, "NUL"},
		{"payload with invalid UTF-8", order{}, nil, fixedCodec{text: "a\xffb"}, bus.ErrInvalidText, "UTF-8"},
		{"payload that cannot be encoded", order{}, nil, fixedCodec{err: noCodec}, noCodec, `encode payload "order.placed"`},
		{"headers too large", order{}, []outbox.Option{outbox.Header("k", strings.Repeat("v", 8<<10))}, nil, bus.ErrTooLarge,
			"8193 bytes, at most 8192"},
		{"header without a name", order{}, []outbox.Option{outbox.Header("", "v")}, nil, bus.ErrInvalidOption, "a header needs a name"},
		{"header of the library", order{}, []outbox.Option{outbox.Header("asyncmonolith-schema", "7")}, nil, bus.ErrInvalidOption,
			`header "asyncmonolith-schema": not allowed`},
		{"header with a NUL byte", order{}, []outbox.Option{outbox.Header("k", "a\x00")}, nil, bus.ErrInvalidText, `header "k"`},
		{"header name with invalid UTF-8", order{}, []outbox.Option{outbox.Header("\xff", "v")}, nil, bus.ErrInvalidText, "UTF-8"},
		{"insert id with a NUL byte", order{}, []outbox.Option{outbox.InsertID("a\x00")}, nil, bus.ErrInvalidText, `insert id "a\x00"`},
		{"insert id with invalid UTF-8", order{}, []outbox.Option{outbox.InsertID("\xff")}, nil, bus.ErrInvalidText, "UTF-8"},
		{"insert id too long", order{}, []outbox.Option{outbox.InsertID(strings.Repeat("k", 256))}, nil, bus.ErrTooLarge,
			"256 bytes, at most 255"},
		{"empty insert id", order{}, []outbox.Option{outbox.InsertID("")}, nil, bus.ErrInvalidOption, "the insert id is empty"},
		{"negative delay", order{}, []outbox.Option{outbox.Delay(-time.Second)}, nil, bus.ErrInvalidOption, "delay -1s"},
		{"delay and instant", order{}, []outbox.Option{outbox.Delay(time.Second), outbox.AvailableAt(time.Now())}, nil,
			bus.ErrInvalidOption, "Delay and AvailableAt together"},
		{"instant beyond the calendar", order{}, []outbox.Option{outbox.AvailableAt(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))}, nil,
			bus.ErrInvalidOption, "year 10000"},
		{"instant beyond the calendar in UTC only", order{},
			[]outbox.Option{outbox.AvailableAt(time.Date(9999, 12, 31, 23, 0, 0, 0,
				time.FixedZone("", -2*3600)))}, nil, bus.ErrInvalidOption, "year 10000:"},
		{"instant before the calendar in UTC only", order{},
			[]outbox.Option{outbox.AvailableAt(time.Date(1, 1, 1, 1, 0, 0, 0,
				time.FixedZone("", 2*3600)))}, nil, bus.ErrInvalidOption, "year 0:"},
		{"header with a long bad name", order{}, []outbox.Option{outbox.Header(strings.Repeat("\xff", 9<<10), "v")}, nil, bus.ErrTooLarge,
			"9217 bytes"},
		{"nil option", order{}, []outbox.Option{nil}, nil, bus.ErrInvalidOption, "option 0 is nil"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			registry, err := bus.RegistryConfig{Codec: test.codec}.NewRegistry(orders("c"))
			if err != nil {
				t.Fatal(err)
			}
			producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			receipt, err := producer.Produce(t.Context(), noDatabase(t), test.payload, test.options...)
			if !errors.Is(err, test.want) || !strings.HasPrefix(err.Error(), "outbox: produce: ") || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
			if receipt != (outbox.Receipt{}) {
				t.Errorf("receipt: got %+v, want none", receipt)
			}
		})
	}
}

func TestProduceManyNamesEveryBadItem(t *testing.T) {
	t.Parallel()
	producer, err := outbox.NewProducer(newRegistry(t, orders("c")), outbox.ProducerConfig{MaxPayload: 100})
	if err != nil {
		t.Fatal(err)
	}
	items := []outbox.Item{
		{Payload: order{}}, {Payload: orphan{}},
		{Payload: order{}, Options: []outbox.Option{outbox.InsertID(""), nil}},
		{Payload: order{ID: strings.Repeat("x", 200)}},
		{Payload: order{}, Options: []outbox.Option{outbox.Delay(-1)}},
	}
	_, err = producer.ProduceMany(t.Context(), noDatabase(t), items...)
	for _, want := range []error{bus.ErrNoConsumer, bus.ErrInvalidOption, bus.ErrTooLarge} {
		if !errors.Is(err, want) {
			t.Errorf("got %v, want it to be %v", err, want)
		}
	}
	for _, want := range []string{`item 1: payload "orphan"`, `item 2: payload "order.placed"`, "insert id is empty", "option 1 is nil",
		`item 3: payload "order.placed": too large`, `item 4: payload "order.placed": not allowed: delay -1ns`} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("got %v, want it to say %q once", err, want)
		}
	}
	many := make([]outbox.Item, 1000)
	_, err = producer.ProduceMany(t.Context(), noDatabase(t), many...)
	if err == nil || !strings.HasSuffix(err.Error(), "and 900 more") {
		t.Errorf("1000 bad items: got %v, want 100 of them named", err)
	}
	err = producer.Send(t.Context(), noDatabase(t), &bus.Message{PayloadType: "order.placed"}, nil,
		&bus.Message{PayloadType: "order.placed", Delay: -1})
	if err == nil || !strings.Contains(err.Error(), "message 1: ") || !strings.Contains(err.Error(), "message 2: ") {
		t.Errorf("send: got %v, want both messages named", err)
	}
}

func TestProduceWithoutADatabaseHandle(t *testing.T) {
	t.Parallel()
	producer, err := outbox.NewProducer(newRegistry(t, orders("c")), outbox.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := producer.Produce(t.Context(), nil, order{}); err == nil {
		t.Error("Produce: got no error, want the nil handle refused")
	}
	if _, err := producer.Produce(t.Context(), (*bun.DB)(nil), order{}); err == nil {
		t.Error("Produce: got no error, want the nil *bun.DB refused")
	}
	if err := producer.RunInTx(t.Context(), nil, func(context.Context, bun.Tx) error { return nil }); err == nil {
		t.Error("RunInTx: got no error, want the nil handle refused")
	}
	if err := producer.RunInTx(t.Context(), noDatabase(t), nil); err == nil {
		t.Error("RunInTx: got no error, want the nil function refused")
	}
	if receipts, err := producer.ProduceMany(t.Context(), noDatabase(t)); err != nil || len(receipts) != 0 {
		t.Errorf("ProduceMany of nothing: got %v, %v, want nothing", receipts, err)
	}
}

func TestZeroProducerSaysSo(t *testing.T) {
	t.Parallel()
	var producer outbox.Producer
	_, err := producer.Produce(t.Context(), noDatabase(t), order{})
	noop := func(context.Context, bun.Tx) error { return nil }
	for _, err := range []error{
		err, producer.Send(t.Context(), noDatabase(t), &bus.Message{}), producer.RunInTx(t.Context(), noDatabase(t), noop),
		(*outbox.Producer)(nil).RunInTx(t.Context(), noDatabase(t), noop),
	} {
		if err == nil || !strings.Contains(err.Error(), "not made by NewProducer") {
			t.Errorf("got %v, want it to say what is missing", err)
		}
	}
}

func TestSharedErrorsAreThoseOfBus(t *testing.T) {
	t.Parallel()
	if outbox.ErrNotInTx != txn.ErrNotInTx || outbox.ErrSchemaOutdated != dberr.ErrSchema {
		t.Error("the errors that packages share: got others than those of bus")
	}
}

func TestWhatMiddlewareAddsIsCheckedToo(t *testing.T) {
	t.Parallel()
	spoil := bus.PerMessage(func(_ context.Context, m *bus.Message) error {
		m.Headers = map[string]string{"k": "\x00"}
		return nil
	})
	producer, err := outbox.NewProducer(newRegistry(t, orders("c")), outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{spoil}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := producer.Produce(t.Context(), noStatements(t), order{}); !errors.Is(err, bus.ErrInvalidText) {
		t.Errorf("got %v, want ErrInvalidText", err)
	}
}

func TestProduceChainSeesTheBatchInOrder(t *testing.T) {
	t.Parallel()
	var seen []string
	stop := errors.New("enough")
	layer := func(name string) bus.ProduceMiddleware {
		return func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, b *bus.Batch) error {
				batch := b.Messages
				seen = append(seen, name)
				if len(batch) != 2 || batch[1].Value != (order{ID: "2"}) || string(batch[1].Payload) != `{"id":"2"}` {
					t.Errorf("%s: got batch %+v, want both messages with value and payload", name, batch)
				}
				if name == "inner" {
					return stop
				}
				return next(ctx, b)
			}
		}
	}
	producer, err := outbox.NewProducer(newRegistry(t, orders("c")), outbox.ProducerConfig{
		Telemetry: layer("telemetry"), Middleware: []bus.ProduceMiddleware{layer("outer"), layer("inner")},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = producer.ProduceMany(t.Context(), noStatements(t), outbox.Item{Payload: order{ID: "1"}}, outbox.Item{Payload: order{ID: "2"}})
	if !errors.Is(err, stop) {
		t.Errorf("got %v, want the layer's error", err)
	}
	if got := strings.Join(seen, " "); got != "telemetry outer inner" {
		t.Errorf("order: got %s, want telemetry outer inner", got)
	}
}
