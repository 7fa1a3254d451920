package bus_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

type orderPlaced struct {
	OrderID string `json:"order_id"`
	Amount  int    `json:"amount"`
}

func (orderPlaced) PayloadType() string { return "order.placed" }

type orderShipped struct {
	OrderID string `json:"order_id"`
}

func (orderShipped) PayloadType() string { return "order.shipped" }

// ignore is a consumer's function for any payload.
func ignore[T bus.Payload](context.Context, T) error { return nil }

func mustRegister(t *testing.T, consumers ...bus.Consumer) *bus.Registry {
	t.Helper()
	registry, err := bus.NewRegistry(consumers...)
	if err != nil {
		t.Fatalf("NewRegistry: got %v, want no mistakes", err)
	}
	return registry
}

// mistakes takes a joined error apart.
func mistakes(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, mistakes(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}

// mentions reports whether one of the texts has every part.
func mentions(texts []string, parts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	})
}

func namesOf(consumers []bus.Consumer) []string {
	names := make([]string, len(consumers))
	for i, c := range consumers {
		names[i] = c.Name()
	}
	return names
}

func assertNames(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func shopConsumers() []bus.Consumer {
	return []bus.Consumer{
		bus.Consume("update-stock", ignore[orderPlaced], bus.Aliases("stock", "warehouse")),
		bus.Consume("send-receipt", ignore[orderPlaced], bus.PayloadAliases("order.created", "order.made")),
		bus.Consume("notify", ignore[orderShipped], bus.PayloadAliases("order.sent")),
	}
}

func TestRegistryResolvesConsumersByName(t *testing.T) {
	t.Parallel()
	registry := mustRegister(t, shopConsumers()...)
	tests := []struct {
		name   string
		lookup string
		want   string // empty: nobody
	}{
		{"the name itself", "update-stock", "update-stock"},
		{"a former name", "stock", "update-stock"},
		{"another former name", "warehouse", "update-stock"},
		{"a consumer without aliases", "notify", "notify"},
		{"an unknown name", "update", ""},
		{"the empty name", "", ""},
		{"a payload type", "order.placed", ""},
		{"a name in another case", "Notify", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, ok := registry.Consumer(test.lookup)
			if got.Name() != test.want || ok != (test.want != "") {
				t.Errorf("Consumer(%q): got %q, %t, want %q, %t", test.lookup, got.Name(), ok, test.want, test.want != "")
			}
		})
	}
}

func TestRegistryResolvesConsumersByPayload(t *testing.T) {
	t.Parallel()
	registry := mustRegister(t, shopConsumers()...)
	tests := []struct {
		name        string
		payloadType string
		want        []string
	}{
		{"a payload with several consumers", "order.placed", []string{"update-stock", "send-receipt"}},
		{"a payload with one consumer", "order.shipped", []string{"notify"}},
		{"a former payload name goes only to who lists it", "order.created", []string{"send-receipt"}},
		{"a second former payload name", "order.made", []string{"send-receipt"}},
		{"a former payload name of another consumer", "order.sent", []string{"notify"}},
		{"an unknown payload", "order.cancelled", nil},
		{"the name of a consumer", "notify", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := access.ConsumersOf(registry, test.payloadType)
			assertNames(t, "consumers", namesOf(got), test.want)
			if (got == nil) != (test.want == nil) {
				t.Errorf("consumers(%q): got %v, want nil exactly when it has no consumer", test.payloadType, got)
			}
		})
	}
}

func TestRegistryOrderIsStable(t *testing.T) {
	t.Parallel()
	const builds = 20 // a map's order would show
	for range builds {
		registry := mustRegister(t, shopConsumers()...)
		assertNames(t, "Consumers, sorted by name", namesOf(registry.Consumers()), []string{"notify", "send-receipt", "update-stock"})
		assertNames(t, "consumers, as registered", namesOf(access.ConsumersOf(registry, "order.placed")),
			[]string{"update-stock", "send-receipt"})
		assertNames(t, "PayloadTypes, sorted", access.AllPayloadTypes(registry),
			[]string{"order.created", "order.made", "order.placed", "order.sent", "order.shipped"})
	}
	reversed := shopConsumers()
	slices.Reverse(reversed)
	registry := mustRegister(t, reversed...)
	assertNames(t, "Consumers of a reversed registration", namesOf(registry.Consumers()), []string{"notify", "send-receipt", "update-stock"})
	assertNames(t, "consumers of a reversed registration", namesOf(access.ConsumersOf(registry, "order.placed")),
		[]string{"send-receipt", "update-stock"})
}

func TestRegistryCannotBeChangedThroughWhatItReturns(t *testing.T) {
	t.Parallel()
	registry := mustRegister(t, shopConsumers()...)
	consumers := registry.Consumers()
	consumers[0] = consumers[2]
	stock, _ := registry.Consumer("update-stock")
	access.Names(stock)[0] = "changed"
	access.PayloadTypes(stock)[0] = "changed"
	config := stock.Config()
	config.Aliases[0], config.MaxAttempts = "changed", 99
	access.SetValue(&config, "key", "changed")
	access.AllPayloadTypes(registry)[0] = "changed"

	assertNames(t, "Consumers", namesOf(registry.Consumers()), []string{"notify", "send-receipt", "update-stock"})
	again, _ := registry.Consumer("update-stock")
	assertNames(t, "Names", access.Names(again), []string{"update-stock", "stock", "warehouse"})
	assertNames(t, "PayloadTypes of the consumer", access.PayloadTypes(again), []string{"order.placed"})
	assertNames(t, "first of PayloadTypes", access.AllPayloadTypes(registry)[:1], []string{"order.created"})
	unchanged := again.Config()
	if value := access.Value(&unchanged, "key"); unchanged.MaxAttempts != 0 || value != nil {
		t.Errorf("Config: got MaxAttempts %d and value %v, want 0 and nil", unchanged.MaxAttempts, value)
	}
}

func TestRegistryDefaults(t *testing.T) {
	t.Parallel()
	registry := mustRegister(t)
	if got := registry.Codec(); got != (bus.JSON{}) {
		t.Errorf("Codec: got %T, want bus.JSON", got)
	}
	if got := registry.Tables(); got != (bus.Tables{}) {
		t.Errorf("Tables: got %+v, want the zero value", got)
	}
	if got := len(registry.Consumers()) + len(access.AllPayloadTypes(registry)); got != 0 {
		t.Errorf("a registry without consumers: got %d consumers and payload types, want none", got)
	}
	if first, again := access.Wakeups(registry), access.Wakeups(registry); first == nil || first != again {
		t.Errorf("Wakeups: got %p then %p, want one signal per registry", first, again)
	}
}

func TestRegistryConfigIsKept(t *testing.T) {
	t.Parallel()
	tables, codec := bus.Tables{Schema: "shop", Prefix: "am_"}, quotingCodec{}
	registry, err := bus.RegistryConfig{Tables: tables, Codec: codec}.NewRegistry(shopConsumers()...)
	if err != nil {
		t.Fatal(err)
	}
	if got := registry.Tables(); got != tables {
		t.Errorf("Tables: got %+v, want %+v", got, tables)
	}
	if got := registry.Codec(); got != codec {
		t.Errorf("Codec: got %T, want %T", got, codec)
	}
}

// A wiring is a set of consumers with exactly one mistake in it. Consumers of
// different wirings have nothing in common, so that all can be registered at once.
type wiring struct {
	name      string
	consumers []bus.Consumer
	want      []string // parts of the one mistake
}

type firstInvoice struct{ Number int }

func (firstInvoice) PayloadType() string { return "invoice.sent" }

type secondInvoice struct{ Number string }

func (secondInvoice) PayloadType() string { return "invoice.sent" }

func clashes() []wiring {
	consume := func(name string, options ...bus.ConsumerOption) bus.Consumer {
		return bus.Consume(name, ignore[orderPlaced], options...)
	}
	return []wiring{
		{"a name used twice", []bus.Consumer{consume("twin"), bus.Consume("twin", ignore[orderShipped])},
			[]string{`consumer "twin" is registered twice`}},
		{"a name that is another's alias", []bus.Consumer{consume("a1", bus.Aliases("a0")), consume("a0")},
			[]string{`consumer "a0"`, `"a0" is taken`, `"a1"`}},
		{"an alias that is another's name", []bus.Consumer{consume("b0"), consume("b1", bus.Aliases("b0"))},
			[]string{`consumer "b1"`, `"b0" is taken`}},
		{"an alias that is another's alias", []bus.Consumer{consume("c1", bus.Aliases("c0")), consume("c2", bus.Aliases("c0"))},
			[]string{`consumer "c2"`, `"c0" is taken`, `"c1"`}},
		{"an alias listed twice", []bus.Consumer{consume("d1", bus.Aliases("d0", "d0"))},
			[]string{`consumer "d1"`, `"d0"`}},
		{"an alias that is the consumer's own name", []bus.Consumer{consume("e1", bus.Aliases("e1"))},
			[]string{`consumer "e1"`, `"e1"`}},
		{"a payload alias listed twice", []bus.Consumer{consume("f1", bus.PayloadAliases("f.old", "f.old"))},
			[]string{`consumer "f1"`, `"f.old"`, "twice"}},
		{"a payload alias that is the payload type", []bus.Consumer{consume("g1", bus.PayloadAliases("order.placed"))},
			[]string{`consumer "g1"`, `"order.placed"`, "twice"}},
		{"two Go types for one payload type", []bus.Consumer{bus.Consume("h1", ignore[firstInvoice]), bus.Consume("h2", ignore[secondInvoice])},
			[]string{`consumer "h2"`, `"invoice.sent"`, "bus_test.firstInvoice", "bus_test.secondInvoice"}},
		{"a payload alias that is another Go type's payload type",
			[]bus.Consumer{consume("i1"), bus.Consume("i2", ignore[orderShipped], bus.PayloadAliases("order.placed"))},
			[]string{`consumer "i2"`, `"order.placed"`, "bus_test.orderShipped", "bus_test.orderPlaced"}},
	}
}

func TestRegistryReportsEachWiringMistake(t *testing.T) {
	t.Parallel()
	for _, w := range slices.Concat(clashes(), badNames(), badFunctions(), badSettings()) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			registry, err := bus.NewRegistry(w.consumers...)
			if registry != nil {
				t.Errorf("got a registry, want none next to the error %v", err)
			}
			if got := mistakes(err); len(got) != 1 || !mentions(got, w.want) {
				t.Errorf("got mistakes %q, want one with %q", got, w.want)
			}
		})
	}
}

func TestRegistryReportsAllWiringMistakesAtOnce(t *testing.T) {
	t.Parallel()
	wirings := slices.Concat(clashes(), badNames(), badFunctions(), badSettings())
	var consumers []bus.Consumer
	for _, w := range wirings {
		consumers = append(consumers, w.consumers...)
	}
	_, err := bus.RegistryConfig{Tables: bus.Tables{Prefix: "No!"}, HeartbeatInterval: -time.Second}.NewRegistry(consumers...)
	got := mistakes(err)
	for _, w := range wirings {
		if !mentions(got, w.want) {
			t.Errorf("%s: got no mistake with %q", w.name, w.want)
		}
	}
	if !mentions(got, []string{"Tables.Prefix", `"No!"`}) {
		t.Errorf("got no mistake about the tables in %q", got)
	}
	if !mentions(got, []string{"HeartbeatInterval", "-1s"}) {
		t.Errorf("got no mistake about the interval in %q", got)
	}
	if want := len(wirings) + 2; len(got) != want {
		t.Errorf("got %d mistakes, want %d:\n%s", len(got), want, strings.Join(got, "\n"))
	}
}

func TestRegistryReportsSeveralMistakesOfOneConsumer(t *testing.T) {
	t.Parallel()
	_, err := bus.NewRegistry(bus.Consume[*orderPlaced]("", nil, nil, bus.MaxAttempts(-1), bus.Aliases("")))
	got := mistakes(err)
	for _, want := range []string{"is empty", "function is nil", "option 0 is nil", "MaxAttempts", "pointer", `alias ""`} {
		if !mentions(got, []string{want}) {
			t.Errorf("got mistakes %q, want one with %q", got, want)
		}
	}
	if len(got) != 6 {
		t.Errorf("got %d mistakes %q, want 6", len(got), got)
	}
}

func TestRegistryMistakesAreOneErrorPerLine(t *testing.T) {
	t.Parallel()
	_, err := bus.NewRegistry(bus.Consumer{}, bus.Consume("", ignore[orderPlaced]))
	if err == nil {
		t.Fatal("got no error, want two mistakes")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 2 {
		t.Fatalf("got %d lines %q, want 2", len(lines), lines)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "bus: ") {
			t.Errorf("got line %q, want it to start with the package", line)
		}
	}
	if errors.Unwrap(err) != nil {
		t.Errorf("got an error that wraps %v alone, want a joined one", errors.Unwrap(err))
	}
}

func TestWakeupsOfRegistriesAreApart(t *testing.T) {
	t.Parallel()
	one, other := mustRegister(t), mustRegister(t)
	calls := 0
	defer access.Wakeups(one).Listen(func(wakeup.Wake) { calls++ })()
	access.Wakeups(other).Send(wakeup.Wake{})
	access.Wakeups(one).Send(wakeup.Wake{})
	if calls != 1 {
		t.Errorf("got %d calls, want only the one through the listener's registry", calls)
	}
}
