package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// priced is written in schema 3. Schema 1 had the field amount, schema 2 the field price.
type priced struct {
	Cents int `json:"cents"`
}

func (priced) PayloadType() string { return "priced" }

func (p priced) OrderingKey() string { return fmt.Sprint(p.Cents) }

func (priced) Upcasters() []bus.Upcaster {
	rename := func(before, now string) bus.Upcaster {
		return func(_ context.Context, text []byte) ([]byte, error) {
			switch {
			case strings.Contains(string(text), "obsolete"):
				return nil, bus.Discard(errors.New("nothing of that is left"))
			case strings.Contains(string(text), "bad"):
				return nil, errors.New("secret content")
			case strings.Contains(string(text), "panic"):
				panic("secret content")
			case !strings.Contains(string(text), before):
				return nil, fmt.Errorf("no %s in it", before)
			}
			return []byte(strings.Replace(string(text), before, now, 1)), nil
		}
	}
	return []bus.Upcaster{rename("amount", "price"), rename("price", "cents")}
}

// TestStoredSchemasAreUpcast delivers texts of each schema to a consumer of single messages and to one of batches.
func TestStoredSchemasAreUpcast(t *testing.T) {
	t.Parallel()
	var got []int
	one := bus.Consume("one", func(_ context.Context, p priced) error { got = append(got, p.Cents); return nil })
	batch := bus.ConsumeBatch("batch", func(_ context.Context, all []priced) error {
		for _, p := range all {
			got = append(got, p.Cents)
		}
		return nil
	})
	for _, c := range []bus.Consumer{one, batch} {
		for schema, text := range []string{`{"cents":7}`, `{"amount":7}`, `{"price":7}`, `{"cents":7}`} {
			got = nil
			m := &bus.Message{PayloadType: "priced", Payload: []byte(text), Schema: schema, Consumer: c.Name()}
			err := c.Consume(bus.ContextWithMessage(t.Context(), m), bus.JSON{}, m.Payload)
			if err != nil || len(got) != 1 || got[0] != 7 {
				t.Errorf("%s, schema %d: got %v and error %v, want 7 cents", c.Name(), schema, got, err)
			}
		}
	}
}

// TestOnlyOwnMessagesAreUpcast: a consumer called within another one, and one of events, get the payload as it is.
func TestOnlyOwnMessagesAreUpcast(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*bus.Message{
		"another consumer's": {PayloadType: "other", Schema: 1, Consumer: "outer"},
		"an event's":         {PayloadType: "priced", Schema: 1, Consumer: "inner", Event: &bus.Event{Schema: 1}},
	} {
		var got int
		c := bus.Consume("inner", func(_ context.Context, p priced) error { got = p.Cents; return nil })
		err := c.Consume(bus.ContextWithMessage(t.Context(), m), bus.JSON{}, []byte(`{"cents":7,"price":9}`))
		if err != nil || got != 7 {
			t.Errorf("%s message: got %d and error %v, want 7", name, got, err)
		}
	}
}

// TestUpcasterFailuresAreDecodeErrors, which quote nothing of the payload. What the upcaster discards is discarded.
func TestUpcasterFailuresAreDecodeErrors(t *testing.T) {
	t.Parallel()
	c := bus.Consume("c", func(context.Context, priced) error { return errors.New("it was called") })
	for text, want := range map[string]bus.Outcome{"bad": bus.Condemned, "panic": bus.Condemned, "obsolete": bus.Discarded} {
		m := &bus.Message{PayloadType: "priced", Schema: 1, Consumer: "c"}
		err := c.Consume(bus.ContextWithMessage(t.Context(), m), bus.JSON{}, []byte(`{"amount":"`+text+`"}`))
		if got := bus.OutcomeOf(err).Outcome; got != want {
			t.Errorf("%s: got %v (%v), want %v", text, got, err, want)
		}
		_, decode := errors.AsType[*bus.DecodeError](err)
		if decode != (want == bus.Condemned) || decode && !strings.Contains(err.Error(), "upcast from schema 1") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %T, %v, want a decode error that names the schema and quotes nothing", text, err, err)
		}
	}
}

// TestNewerSchemaIsLeftToNewerProcesses: the message is snoozed, the longer the older it is.
func TestNewerSchemaIsLeftToNewerProcesses(t *testing.T) {
	t.Parallel()
	c := bus.Consume("c", func(context.Context, priced) error { return errors.New("it was called") })
	for age, want := range map[time.Duration]time.Duration{0: time.Second, 10 * time.Second: 10 * time.Second, time.Hour: 30 * time.Second} {
		m := &bus.Message{PayloadType: "priced", Schema: 4, Consumer: "c", CreatedAt: time.Now().Add(-age)}
		err := c.Consume(bus.ContextWithMessage(t.Context(), m), bus.JSON{}, []byte(`{"cents":7}`))
		v := bus.OutcomeOf(err)
		if v.Outcome != bus.Snoozed || v.Delay.Round(time.Second) != want ||
			!strings.Contains(v.Error(), "schema 4 is unknown, 1 to 3 are known") {
			t.Errorf("%s old: got %v for %s (%v), want snoozed for %s", age, v.Outcome, v.Delay, err, want)
		}
	}
	plain := bus.Consume("plain", func(context.Context, plainPriced) error { return errors.New("it was called") })
	m := &bus.Message{PayloadType: "priced", Schema: 2, Consumer: "plain"}
	err := plain.Consume(bus.ContextWithMessage(t.Context(), m), bus.JSON{}, []byte(`{}`))
	if bus.OutcomeOf(err).Outcome != bus.Snoozed {
		t.Errorf("a type without upcasters, schema 2: got %v, want it snoozed", err)
	}
}

// plainPriced is priced of a release before.
type plainPriced struct{}

func (plainPriced) PayloadType() string { return "priced" }

// TestKeyOfAnOlderSchema: the key of a stored payload is that of the payload in the newest schema.
func TestKeyOfAnOlderSchema(t *testing.T) {
	t.Parallel()
	r, err := bus.NewRegistry(bus.Consume("c", func(context.Context, priced) error { return nil }, bus.Ordered(bus.SkipPoisoned)))
	if err != nil {
		t.Fatal(err)
	}
	m := &bus.Message{PayloadType: "priced", Payload: []byte(`{"amount":7}`), Schema: 1}
	if err := access.SetKey(r, m); err != nil || m.OrderingKey != "7" {
		t.Errorf("got key %q and error %v, want 7", m.OrderingKey, err)
	}
	if err := access.SetKey(r, &bus.Message{PayloadType: "priced", Payload: []byte(`{}`), Schema: 9}); !access.IsNewer(err) {
		t.Errorf("schema 9: got %v, want that it is newer", err)
	}
}

// TestProducedSchema is the newest, unless the message has one.
func TestProducedSchema(t *testing.T) {
	t.Parallel()
	typed, err := bus.NewRegistry(bus.Consume("c", func(context.Context, priced) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := bus.NewRegistry(bus.ConsumeRaw("c", func(context.Context, []*bus.Message) error { return nil }, []string{"priced"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		registry *bus.Registry
		message  bus.Message
		want     int
	}{
		{"sent", typed, bus.Message{PayloadType: "priced"}, 3},
		{"sent, of schema 2", typed, bus.Message{PayloadType: "priced", Schema: 2}, 2},
		{"produced for a forwarder", raw, bus.Message{PayloadType: "priced", Value: priced{}}, 3},
		{"sent to a forwarder", raw, bus.Message{PayloadType: "priced"}, 1},
	} {
		if got := access.Schema(test.registry, &test.message); got != test.want {
			t.Errorf("%s: got schema %d, want %d", test.name, got, test.want)
		}
	}
}

type nilUpcaster struct{}

func (nilUpcaster) PayloadType() string       { return "nil" }
func (nilUpcaster) Upcasters() []bus.Upcaster { return []bus.Upcaster{nil} }

type panicking struct{}

func (panicking) PayloadType() string       { return "panicking" }
func (panicking) Upcasters() []bus.Upcaster { panic("no") }

// TestUnusableUpcastersAreRefused by NewRegistry.
func TestUnusableUpcastersAreRefused(t *testing.T) {
	t.Parallel()
	_, err := bus.NewRegistry(bus.Consume("a", func(context.Context, nilUpcaster) error { return nil }),
		bus.Declare[panicking]("b"))
	for _, want := range []string{"the upcaster of schema 1 is nil", "Upcasters panicked on the zero value"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want that %s", err, want)
		}
	}
}
