package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

type unconsumed struct{}

func (unconsumed) PayloadType() string { return "unconsumed" }

type cyclic struct{ F float64 }

func (cyclic) PayloadType() string { return "cyclic" }

type keyless struct{ Key string }

func (keyless) PayloadType() string { return "keyless" }
func (k keyless) OrderingKey() string {
	if k.Key == "panic" {
		panic("no key")
	}
	return k.Key
}

type full interface {
	producing
	Produce(ctx context.Context, db bus.Handle, payload bus.Payload, options ...outbox.Option) (outbox.Receipt, error)
	Send(ctx context.Context, db bun.IDB, batch ...*bus.Message) error
	Within(ctx context.Context, fn func(ctx context.Context) error) error
}

// TestTheFakesErrors are those of the producer.
func TestTheFakesErrors(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a := testapp.New(t, db, bus.Consume("ship", func(context.Context, OrderPlaced) error { return nil }),
		bus.Consume("cyc", func(context.Context, cyclic) error { return nil }),
		bus.Consume("key", func(context.Context, keyless) error { return nil }, bus.Ordered(bus.BlockKey)))
	fake := &bustest.FakeProducer{Registry: a.Registry}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ok := OrderPlaced{"1"}
	id := uuid.Must(uuid.NewV7())
	for name, do := range map[string]func(p full, db *bun.DB) error{
		"nil payload":   func(p full, db *bun.DB) error { return testapp.Second(p.Produce(t.Context(), db, nil)) },
		"pointer":       func(p full, db *bun.DB) error { return testapp.Second(p.Produce(t.Context(), db, &ok)) },
		"nil pointer":   func(p full, db *bun.DB) error { return testapp.Second(p.Produce(t.Context(), db, (*OrderPlaced)(nil))) },
		"no consumer":   func(p full, db *bun.DB) error { return testapp.Second(p.Produce(t.Context(), db, unconsumed{})) },
		"not encodable": func(p full, db *bun.DB) error { return testapp.Second(p.Produce(t.Context(), db, cyclic{math.NaN()})) },
		"no key":        func(p full, db *bun.DB) error { return testapp.Second(p.Produce(t.Context(), db, keyless{})) },
		"long key": func(p full, db *bun.DB) error {
			return testapp.Second(p.Produce(t.Context(), db, keyless{fmt.Sprintf("%0300d", 1)}))
		},
		"own key": func(p full, db *bun.DB) error {
			return testapp.Second(p.Produce(t.Context(), db, keyless{}, outbox.OrderingKey("k")))
		},
		"empty key option": func(p full, db *bun.DB) error {
			return testapp.Second(p.Produce(t.Context(), db, ok, outbox.OrderingKey("")))
		},
		"nil option": func(p full, db *bun.DB) error { return testapp.Second(p.Produce(t.Context(), db, ok, nil)) },
		"ended":      func(p full, db *bun.DB) error { return testapp.Second(p.Produce(ended, db, ok)) },
		"ended tx": func(p full, db *bun.DB) error {
			return p.RunInTx(ended, db, func(context.Context, bun.Tx) error { return nil })
		},
		"ended within": func(p full, db *bun.DB) error { // its function begins and commits the transaction
			ran := false
			err := p.Within(ended, func(context.Context) error { ran = true; return nil })
			if !ran {
				return fmt.Errorf("did not run: %w", err)
			}
			return err
		},
		"ends within": func(p full, db *bun.DB) error {
			ctx, cancel := context.WithCancel(t.Context())
			return p.Within(ctx, func(context.Context) error { cancel(); return nil })
		},
		"reserved header": func(p full, db *bun.DB) error {
			return testapp.Second(p.Produce(t.Context(), db, ok, outbox.Header("asyncmonolith-event", "1")))
		},
		"nil function": func(p full, db *bun.DB) error { return p.RunInTx(t.Context(), db, nil) },
		"nested": func(p full, db *bun.DB) error {
			return p.RunInTx(t.Context(), db, func(ctx context.Context, _ bun.Tx) error {
				return p.RunInTx(ctx, db, func(context.Context, bun.Tx) error { return nil })
			})
		},
		"db in tx": func(p full, d *bun.DB) error {
			return p.RunInTx(t.Context(), d, func(ctx context.Context, _ bun.Tx) error { return testapp.Second(p.Produce(ctx, db, ok)) })
		},
		"send nil message": func(p full, db *bun.DB) error { return p.Send(t.Context(), db, nil) },
		"send nothing":     func(p full, db *bun.DB) error { return p.Send(t.Context(), db) },
		"send empty":       func(p full, db *bun.DB) error { return p.Send(t.Context(), db, &bus.Message{}) },
		"send no payload": func(p full, db *bun.DB) error {
			return p.Send(t.Context(), db, &bus.Message{PayloadType: "order.placed"})
		},
		"send bad json": func(p full, db *bun.DB) error {
			return p.Send(t.Context(), db, &bus.Message{PayloadType: OrderPlaced{}.PayloadType(), Payload: []byte("{")})
		},
		"send bad json key": func(p full, db *bun.DB) error {
			return p.Send(t.Context(), db, &bus.Message{PayloadType: "keyless", Payload: []byte("{")})
		},
		"send same id twice": func(p full, db *bun.DB) error {
			m := func() *bus.Message {
				return &bus.Message{ID: id, PayloadType: OrderPlaced{}.PayloadType(), Payload: []byte(`{"id":"1"}`)}
			}
			return p.Send(t.Context(), db, m(), m())
		},
		"send id again": func(p full, db *bun.DB) error {
			return p.Send(t.Context(), db, &bus.Message{ID: id, PayloadType: OrderPlaced{}.PayloadType(), Payload: []byte(`{"id":"1"}`)})
		},
		"send recipient unknown": func(p full, db *bun.DB) error {
			return p.Send(t.Context(), db, &bus.Message{
				PayloadType: OrderPlaced{}.PayloadType(), Payload: []byte(`{"id":"1"}`), Recipients: []string{"unconsumed"},
			})
		},
		"send delay negative": func(p full, db *bun.DB) error {
			return p.Send(t.Context(), db, &bus.Message{PayloadType: OrderPlaced{}.PayloadType(), Payload: []byte(`{"id":"1"}`), Delay: -time.Second})
		},
		"panicking key": func(p full, db *bun.DB) (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = fmt.Errorf("panicked %v", v)
				}
			}()
			return testapp.Second(p.Produce(t.Context(), db, keyless{"panic"}))
		},
	} {
		said := func(p full, d *bun.DB) (text string) {
			defer func() {
				if v := recover(); v != nil {
					text = fmt.Sprintf("PANIC %v", v)
				}
			}()
			err := do(p, d)
			if err == nil {
				return "nil"
			}
			for what, sentinel := range map[string]error{"no consumer": bus.ErrNoConsumer, "payload": bus.ErrInvalidPayload,
				"option": bus.ErrInvalidOption, "text": bus.ErrInvalidText, "large": bus.ErrTooLarge, "key": bus.ErrNoKey,
				"not in tx": outbox.ErrNotInTx, "canceled": context.Canceled} {
				if errors.Is(err, sentinel) {
					text += " " + what
				}
			}
			return text + ": " + err.Error()
		}
		if got, want := said(fake, nil), said(a.Producer, db); got != want {
			t.Errorf("%s:\n fake %q\n real %q", name, got, want)
		}
	}
}
