package bus_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// Payloads that are mistaken about their stored name.
type (
	emptyNamed   struct{}
	longNamed    struct{}
	nulNamed     struct{}
	latinNamed   struct{}
	panicNamed   struct{}
	pointerNamed struct{ name *string }
)

func (emptyNamed) PayloadType() string     { return "" }
func (longNamed) PayloadType() string      { return strings.Repeat("n", 256) }
func (nulNamed) PayloadType() string       { return "nul\x00named" }
func (latinNamed) PayloadType() string     { return "caf\xe9" }
func (panicNamed) PayloadType() string     { panic("no name yet") }
func (p pointerNamed) PayloadType() string { return *p.name }

func badNames() []wiring {
	of := func(name string, options ...bus.ConsumerOption) []bus.Consumer {
		return []bus.Consumer{bus.Consume(name, ignore[orderPlaced], options...)}
	}
	long := strings.Repeat("é", 128)
	return []wiring{
		{"an empty name", of(""), []string{`consumer ""`, "name", "is empty"}},
		{"a name of 256 bytes", of(long), []string{long, "256 bytes", "255"}},
		{"a name with a NUL byte", of("re\x00ceipt"), []string{`"re\x00ceipt"`, "NUL", "offset 2"}},
		{"a name that is not UTF-8", of("caf\xe9"), []string{`"caf\xe9"`, "UTF-8"}},
		{"an empty alias", of("alias-1", bus.Aliases("")), []string{`consumer "alias-1"`, `alias ""`, "is empty"}},
		{"an alias of 256 bytes", of("alias-2", bus.Aliases(long)), []string{`consumer "alias-2"`, long, "255"}},
		{"an alias with a NUL byte", of("alias-3", bus.Aliases("x\x00")), []string{`consumer "alias-3"`, `"x\x00"`, "NUL"}},
		{"an alias that is not UTF-8", of("alias-4", bus.Aliases("\xff")), []string{`consumer "alias-4"`, `"\xff"`, "UTF-8"}},
		{"an empty payload alias", of("alias-5", bus.PayloadAliases("")), []string{`consumer "alias-5"`, `payload alias ""`, "is empty"}},
		{"a payload alias of 256 bytes", of("alias-6", bus.PayloadAliases(long)), []string{`consumer "alias-6"`, long, "255"}},
		{"a payload alias with a NUL byte", of("alias-7", bus.PayloadAliases("\x00")), []string{`consumer "alias-7"`, `"\x00"`, "NUL"}},
		{"a payload alias that is not UTF-8", of("alias-8", bus.PayloadAliases("\xc0")), []string{`consumer "alias-8"`, `"\xc0"`, "UTF-8"}},
		{"a payload without a stored name", []bus.Consumer{bus.Consume("stored-1", ignore[emptyNamed])},
			[]string{`consumer "stored-1"`, "bus_test.emptyNamed", `""`, "is empty"}},
		{"a payload with a stored name of 256 bytes", []bus.Consumer{bus.Consume("stored-2", ignore[longNamed])},
			[]string{`consumer "stored-2"`, "bus_test.longNamed", "256 bytes", "255"}},
		{"a payload with a NUL byte in its stored name", []bus.Consumer{bus.Consume("stored-3", ignore[nulNamed])},
			[]string{`consumer "stored-3"`, "bus_test.nulNamed", `"nul\x00named"`, "NUL"}},
		{"a payload with a stored name that is not UTF-8", []bus.Consumer{bus.Consume("stored-4", ignore[latinNamed])},
			[]string{`consumer "stored-4"`, "bus_test.latinNamed", `"caf\xe9"`, "UTF-8"}},
	}
}

func badFunctions() []wiring {
	return []wiring{
		{"a nil function", []bus.Consumer{bus.Consume[orderPlaced]("no-function", nil)},
			[]string{`consumer "no-function"`, "function is nil"}},
		{"a nil option", []bus.Consumer{bus.Consume("no-option", ignore[orderPlaced], bus.MaxAttempts(2), nil)},
			[]string{`consumer "no-option"`, "option 1 is nil"}},
		{"a zero Consumer", []bus.Consumer{{}}, []string{"zero value", "bus.Consume"}},
		{"a pointer payload", []bus.Consumer{bus.Consume("pointer", ignore[*orderPlaced])},
			[]string{`consumer "pointer"`, "*bus_test.orderPlaced", "pointer", "the struct itself"}},
		{"an interface payload", []bus.Consumer{bus.Consume("interface", ignore[bus.Payload])},
			[]string{`consumer "interface"`, "bus.Payload", "interface", "one concrete type"}},
		{"a PayloadType that panics", []bus.Consumer{bus.Consume("panics", ignore[panicNamed])},
			[]string{`consumer "panics"`, "bus_test.panicNamed", "PayloadType panicked", "no name yet"}},
		{"a PayloadType that follows a nil pointer", []bus.Consumer{bus.Consume("follows", ignore[pointerNamed])},
			[]string{`consumer "follows"`, "bus_test.pointerNamed", "PayloadType panicked", "zero value"}},
	}
}

func badSettings() []wiring {
	with := func(name string, options ...bus.ConsumerOption) []bus.Consumer {
		return []bus.Consumer{bus.Consume(name, ignore[orderPlaced], options...)}
	}
	all := []wiring{
		{"a negative timeout", with("timeout-1", bus.Timeout(-2*time.Second)), []string{`consumer "timeout-1"`, "Timeout -2s", "more than 0"}},
		{"a timeout that is explicitly zero", with("timeout-2", bus.Timeout(0)), []string{`consumer "timeout-2"`, "Timeout", "more than 0"}},
		{"a timeout of more than an hour", with("timeout-3", bus.Timeout(time.Hour+1)),
			[]string{`consumer "timeout-3"`, "1h0m0.000000001s", "1h"}},
		{"negative attempts", with("attempts-1", bus.MaxAttempts(-3)), []string{`consumer "attempts-1"`, "MaxAttempts -3", "more than 0"}},
		{"attempts that are explicitly zero", with("attempts-2", bus.MaxAttempts(0)),
			[]string{`consumer "attempts-2"`, "MaxAttempts", "more than 0"}},
		{"a negative attempt delay", with("delay-1", bus.AttemptDelay(-time.Second)), []string{`consumer "delay-1"`, "AttemptDelay -1s"}},
		{"an attempt delay that is explicitly zero", with("delay-2", bus.AttemptDelay(0)), []string{`consumer "delay-2"`, "AttemptDelay"}},
		{"a negative concurrency", with("concurrency-1", bus.Concurrency(-4)),
			[]string{`consumer "concurrency-1"`, "Concurrency -4", "more than 0"}},
		{"a concurrency that is explicitly zero", with("concurrency-2", bus.Concurrency(0)),
			[]string{`consumer "concurrency-2"`, "Concurrency", "more than 0"}},
		{"a shared limit beside another", with("limit-1", bus.GlobalConcurrency(3), bus.SharedConcurrency("x", 4)),
			[]string{`consumer "limit-1"`, "SharedConcurrency: the consumer already has"}},
		{"a limit beside a shared one", with("limit-2", bus.SharedConcurrency("x", 4), bus.GlobalConcurrency(3)),
			[]string{`consumer "limit-2"`, "GlobalConcurrency: the consumer already has"}},
		{"two shared limits", with("limit-3", bus.SharedConcurrency("x", 4), bus.SharedConcurrency("y", 4)),
			[]string{`consumer "limit-3"`, "only one GlobalConcurrency"}},
		{"a batch of no payload type",
			[]bus.Consumer{bus.ConsumeRaw("raw", func(context.Context, []*bus.Message) error { return nil }, nil)},
			[]string{`consumer "raw"`, "no payload type"}},
	}
	batch := func(context.Context, []orderPlaced) error { return nil }
	for i, s := range []struct {
		want   string
		option bus.ConsumerOption
	}{
		{"BatchSize 1001", bus.BatchSize(1001)},
		{"BatchSize 0", bus.BatchSize(0)},
		{"BatchWait 2s", bus.BatchWait(2 * time.Second)},
	} {
		name := fmt.Sprint("batch-", i)
		all = append(all, wiring{s.want, []bus.Consumer{bus.ConsumeBatch(name, batch, s.option)}, []string{strconv.Quote(name), s.want}})
	}
	for i, s := range []struct {
		want   string
		option bus.ConsumerOption
	}{
		{"ConsumeBatch or", bus.BatchSize(2)},
		{"GlobalConcurrency 0: more than 0", bus.GlobalConcurrency(0)},
		{"GlobalConcurrency 1001: 1 to 1000", bus.GlobalConcurrency(1001)},
		{`SharedConcurrency: the name ""`, bus.SharedConcurrency("", 2)},
		{"KeyConcurrency 0", bus.KeyConcurrency(0)},
		{"KeyConcurrency 1001", bus.KeyConcurrency(1001)},
		{"Prioritized", bus.Prioritized(time.Millisecond)},
		{"RateLimit 0 in 1s, burst 1: n of 1 or more, a time of more than 0, and a burst of 1 to n are allowed", bus.RateLimit(0, time.Second, 1)},
		{"RateLimit 0 in 0s, burst 0", bus.RateLimit(0, 0, 0)},
		{"RateLimit 1 in 0s, burst 1", bus.RateLimit(1, 0, 1)},
		{"RateLimit 5 in 1s, burst 0", bus.RateLimit(5, time.Second, 0)},
		{"KeyRateLimit 5 in 1s, burst 0", bus.KeyRateLimit(5, time.Second, 0)},
		{"KeyRateLimit: the burst 2", bus.KeyRateLimit(1, time.Second, 2)},
		{"RateLimit: the time 25h0m0s", bus.RateLimit(1, 25*time.Hour, 1)},
		{"RateLimit: the burst 3: 1 to 2", bus.RateLimit(2, time.Second, 3)},
		{"up to 1000000 a second", bus.RateLimit(2000, time.Millisecond, 3)},
		{"CircuitBreaker: MinRequests -1: 1 or more", bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: -1})},
		{"CircuitBreaker: FailureRatio 1.5: more than 0", bus.CircuitBreaker(bus.CircuitBreakerConfig{FailureRatio: 1.5})},
		{"CircuitBreaker: Window 1ms: 1 s to 1 h", bus.CircuitBreaker(bus.CircuitBreakerConfig{Window: time.Millisecond})},
		{"CircuitBreaker: Cooldown 2h0m0s: 1 s to 1 h", bus.CircuitBreaker(bus.CircuitBreakerConfig{Cooldown: 2 * time.Hour})},
	} {
		name := fmt.Sprint("setting-", i)
		all = append(all, wiring{s.want, with(name, s.option), []string{strconv.Quote(name), s.want}})
	}
	return all
}

func TestConsumeAcceptsTheLimits(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", 255)
	registry := mustRegister(t, bus.Consume(longest, ignore[orderPlaced], bus.Timeout(limits.Timeout), bus.MaxAttempts(1),
		bus.AttemptDelay(1), bus.Concurrency(1), bus.Backoff(func(int) time.Duration { return 0 }), bus.Aliases(),
		bus.PayloadAliases("ж", strings.Repeat("p", 255))))
	if _, ok := registry.Consumer(longest); !ok {
		t.Errorf("Consumer: got nobody, want the consumer with a name of 255 bytes")
	}
}

// Types that a Go program could try as payloads.
type (
	strangeFunc           func()
	strangeMap            map[string]int
	strangeChan           chan int
	strangeSlice          []string
	strangeArray          [2]bool
	strangeString         string
	strangeEmpty          struct{}
	strangeGeneric[V any] struct{ V V }
	strangeSelf           struct{ Self *strangeSelf }
	strangeHidden         struct{ hidden func() }
)

func (strangeFunc) PayloadType() string       { return "strange.func" }
func (strangeMap) PayloadType() string        { return "strange.map" }
func (strangeChan) PayloadType() string       { return "strange.chan" }
func (strangeSlice) PayloadType() string      { return "strange.slice" }
func (strangeArray) PayloadType() string      { return "strange.array" }
func (strangeString) PayloadType() string     { return "strange.string" }
func (strangeEmpty) PayloadType() string      { return "strange.empty" }
func (strangeGeneric[V]) PayloadType() string { return "strange.generic" }
func (strangeSelf) PayloadType() string       { return "strange.self" }
func (s strangeHidden) PayloadType() string   { s.hidden(); return "strange.hidden" }

func TestConsumeNeverPanicsOnAStrangeType(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		consumer func() bus.Consumer
		refused  bool
	}{
		{"a function", func() bus.Consumer { return bus.Consume("strange", ignore[strangeFunc]) }, false},
		{"a map", func() bus.Consumer { return bus.Consume("strange", ignore[strangeMap]) }, false},
		{"a channel", func() bus.Consumer { return bus.Consume("strange", ignore[strangeChan]) }, false},
		{"a slice", func() bus.Consumer { return bus.Consume("strange", ignore[strangeSlice]) }, false},
		{"an array", func() bus.Consumer { return bus.Consume("strange", ignore[strangeArray]) }, false},
		{"a string", func() bus.Consumer { return bus.Consume("strange", ignore[strangeString]) }, false},
		{"an empty struct", func() bus.Consumer { return bus.Consume("strange", ignore[strangeEmpty]) }, false},
		{"a generic struct", func() bus.Consumer { return bus.Consume("strange", ignore[strangeGeneric[func()]]) }, false},
		{"a struct that points to itself", func() bus.Consumer { return bus.Consume("strange", ignore[strangeSelf]) }, false},
		{"a struct that embeds a payload", func() bus.Consumer { return bus.Consume("strange", ignore[struct{ orderPlaced }]) }, false},
		{"a struct that embeds a pointer to a payload",
			func() bus.Consumer { return bus.Consume("strange", ignore[struct{ *orderPlaced }]) }, true},
		{"a struct that embeds the interface", func() bus.Consumer { return bus.Consume("strange", ignore[struct{ bus.Payload }]) }, true},
		{"a struct that calls a nil function", func() bus.Consumer { return bus.Consume("strange", ignore[strangeHidden]) }, true},
		{"a wider interface", func() bus.Consumer {
			return bus.Consume("strange", ignore[interface {
				bus.Payload
				error
			}])
		}, true},
		{"a pointer to a generic struct", func() bus.Consumer { return bus.Consume("strange", ignore[*strangeGeneric[int]]) }, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			consumer := test.consumer()
			_, err := bus.NewRegistry(consumer)
			if got := err != nil; got != test.refused {
				t.Errorf("NewRegistry: got error %v, want refused %t", err, test.refused)
			}
			if test.refused && !strings.Contains(err.Error(), `consumer "strange"`) {
				t.Errorf("NewRegistry: got error %q, want the consumer named", err)
			}
			// What does not fit is an error, whatever the type.
			for _, payload := range []string{"", "null", "{}", "[]", `"x"`, "17", "\x00"} {
				if err := access.CheckPayload(consumer, bus.JSON{}, []byte(payload)); err != nil {
					var decode *bus.DecodeError
					if !errors.As(err, &decode) {
						t.Errorf("CheckPayload(%q): got %v, want a *bus.DecodeError", payload, err)
					}
				}
			}
		})
	}
}

func TestConsumerRunsItsFunction(t *testing.T) {
	t.Parallel()
	type key struct{}
	failure := errors.New("no stock")
	var got orderPlaced
	var value any
	consumer := bus.Consume("update-stock", func(ctx context.Context, e orderPlaced) error {
		got, value = e, ctx.Value(key{})
		return failure
	})
	err := consumer.Consume(context.WithValue(t.Context(), key{}, "from the caller"), bus.JSON{}, []byte(`{"order_id":"o-1","amount":3}`))
	if err != failure {
		t.Errorf("Consume: got error %v, want the function's own, %v", err, failure)
	}
	if want := (orderPlaced{"o-1", 3}); got != want {
		t.Errorf("the function got %+v, want %+v", got, want)
	}
	if value != "from the caller" {
		t.Errorf("the function's context: got value %v, want the caller's", value)
	}
}

func TestConsumerDoesNotRunOnABadPayload(t *testing.T) {
	t.Parallel()
	ran := false
	consumer := bus.Consume("update-stock", func(context.Context, orderPlaced) error { ran = true; return nil })
	bad, good := []byte(`{"amount":"three"}`), []byte(`{"amount":3}`)
	err := consumer.Consume(t.Context(), bus.JSON{}, bad)
	if outcome := bus.OutcomeOf(err).Outcome; outcome != bus.Condemned {
		t.Errorf("Consume: got outcome %s, want %s", outcome, bus.Condemned)
	}
	if err := access.CheckPayload(consumer, bus.JSON{}, bad); bus.OutcomeOf(err).Outcome != bus.Condemned {
		t.Errorf("CheckPayload of a bad payload: got %v, want a permanent error", err)
	}
	if err := access.CheckPayload(consumer, bus.JSON{}, good); err != nil {
		t.Errorf("CheckPayload of a good payload: got %v, want none", err)
	}
	if ran {
		t.Error("the function ran, want it called by Consume of a good payload only")
	}
}

func TestConsumerDecodesEveryPayloadAfresh(t *testing.T) {
	t.Parallel()
	var got []orderPlaced
	consumer := bus.Consume("collect", func(_ context.Context, e orderPlaced) error { got = append(got, e); return nil })
	for _, payload := range []string{`{"order_id":"o-1","amount":3}`, `{}`} {
		if err := consumer.Consume(t.Context(), bus.JSON{}, []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []orderPlaced{{"o-1", 3}, {}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOptionsSetTheConfig(t *testing.T) {
	t.Parallel()
	consumer := bus.Consume("update-stock", ignore[orderPlaced],
		bus.Timeout(5*time.Second), bus.MaxAttempts(3), bus.AttemptDelay(time.Minute), bus.Concurrency(7),
		bus.Backoff(func(attempt int) time.Duration { return time.Duration(attempt) }),
		bus.Aliases("stock"), bus.Aliases("warehouse"), bus.PayloadAliases("order.created"), bus.PayloadAliases("order.made"))
	got := consumer.Config()
	if got.Backoff == nil || got.Backoff(9) != 9 {
		t.Error("Backoff: got another, want the option's")
	}
	got.Backoff = nil
	want := bus.ConsumerConfig{Timeout: 5 * time.Second, MaxAttempts: 3, AttemptDelay: time.Minute, Concurrency: 7,
		Aliases: []string{"stock", "warehouse"}, PayloadAliases: []string{"order.created", "order.made"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Config: got %+v, want %+v", got, want)
	}
	assertNames(t, "Names", access.Names(consumer), []string{"update-stock", "stock", "warehouse"})
	assertNames(t, "PayloadTypes", access.PayloadTypes(consumer), []string{"order.placed", "order.created", "order.made"})
	if got := consumer.PayloadType(); got != "order.placed" {
		t.Errorf("PayloadType: got %q, want %q", got, "order.placed")
	}
}

func TestConsumerConfigKeepsValuesOfOtherPackages(t *testing.T) {
	t.Parallel()
	type keyA struct{}
	type keyB struct{}
	var zero bus.ConsumerConfig
	if got := access.Value(&zero, keyA{}); got != nil {
		t.Errorf("Value of a zero config: got %v, want nil", got)
	}
	consumer := bus.Consume("update-stock", ignore[orderPlaced],
		func(c *bus.ConsumerConfig) { access.SetValue(c, keyA{}, 1) }, func(c *bus.ConsumerConfig) { access.SetValue(c, keyA{}, 2) })
	config := consumer.Config()
	if a, b := access.Value(&config, keyA{}), access.Value(&config, keyB{}); a != 2 || b != nil {
		t.Errorf("got values %v and %v, want the last one set, 2, and nil for another key", a, b)
	}
	access.SetValue(&config, keyA{}, 3)
	again := consumer.Config()
	if got := access.Value(&again, keyA{}); got != 2 {
		t.Errorf("after a copy was changed: got value %v, want 2 still", got)
	}
}

func TestConsumersDoNotShareOptions(t *testing.T) {
	t.Parallel()
	names := []string{"old-1", "old-2"}
	options := []bus.ConsumerOption{bus.Aliases(names...)}
	first := bus.Consume("first", ignore[orderPlaced], append(options, bus.Aliases("old-3"))...)
	second := bus.Consume("second", ignore[orderPlaced], append(options, bus.Aliases("old-4"))...)
	names[0] = "changed"
	assertNames(t, "Names of the first", access.Names(first), []string{"first", "old-1", "old-2", "old-3"})
	assertNames(t, "Names of the second", access.Names(second), []string{"second", "old-1", "old-2", "old-4"})
}

// TestOptionsThatExcludeEachOther tests the list in the comment of ConsumerOption.
func TestOptionsThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	options := map[string]bus.ConsumerOption{
		"Ordered": bus.Ordered(bus.BlockKey), "KeyConcurrency": bus.KeyConcurrency(2), "Fair": bus.Fair(),
		"KeyRateLimit": bus.KeyRateLimit(1, time.Second, 1), "Prioritized": bus.Prioritized(time.Minute),
		"GlobalConcurrency": bus.GlobalConcurrency(2), "SharedConcurrency": bus.SharedConcurrency("a", 2),
		"another":   bus.SharedConcurrency("b", 2),
		"RateLimit": bus.RateLimit(1, time.Second, 1), "CircuitBreaker": bus.CircuitBreaker(bus.CircuitBreakerConfig{}),
	}
	excluded := map[[2]string]bool{
		{"Ordered", "KeyConcurrency"}: true, {"Ordered", "Fair"}: true, {"KeyConcurrency", "Fair"}: true,
		{"Prioritized", "Ordered"}: true, {"Prioritized", "KeyConcurrency"}: true, {"Prioritized", "Fair"}: true,
		{"Prioritized", "KeyRateLimit"}: true, {"GlobalConcurrency", "SharedConcurrency"}: true,
		{"GlobalConcurrency", "another"}: true, {"SharedConcurrency", "another"}: true,
	}
	for one, first := range options {
		for other, second := range options {
			if one == other {
				continue
			}
			_, err := bus.NewRegistry(bus.Consume("c", func(context.Context, orderPlaced) error { return nil }, first, second))
			if want := excluded[[2]string{one, other}] || excluded[[2]string{other, one}]; want != (err != nil) {
				t.Errorf("%s with %s: got error %v, want one: %t", one, other, err, want)
			}
		}
	}
	for name, option := range map[string]bus.ConsumerOption{"BatchSize": bus.BatchSize(2), "BatchWait": bus.BatchWait(time.Millisecond)} {
		if _, err := bus.NewRegistry(bus.Consume("c", func(context.Context, orderPlaced) error { return nil }, option)); err == nil {
			t.Errorf("%s of single messages: got no error", name)
		}
	}
}
