package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

type placed struct {
	ID string `json:"id"`
}

func (placed) PayloadType() string { return "order.placed" }

type other struct{}

func (other) PayloadType() string { return "other" }

// answers is a publisher with one answer, which keeps what it was given.
type answers struct {
	errs []error
	got  []broker.Record
}

func (a *answers) Publish(_ context.Context, records []broker.Record) []error {
	a.got = append(a.got, records...)
	return a.errs
}

func TestMistakesOfForwardersAreReportedTogether(t *testing.T) {
	t.Parallel()
	pub := &answers{}
	forwarder := func(change func(c *relay.Config), options ...bus.ConsumerOption) bus.Consumer {
		config := relay.Config{Source: "/shop", Routes: []relay.Route{relay.To[placed]("orders")}}
		change(&config)
		return relay.NewForwarder("c", pub, config, options...)
	}
	routes := func(routes ...relay.Route) bus.Consumer {
		return forwarder(func(c *relay.Config) { c.Routes = routes })
	}
	as := func(*relay.Config) {}
	elsewhere := relay.DestinationFunc(func(*bus.Message, other) (string, error) { return "", nil })
	tests := map[string]bus.Consumer{
		"the publisher is nil": relay.NewForwarder("c", nil,
			relay.Config{Source: "/shop", Routes: []relay.Route{relay.To[placed]("orders")}}),
		`Source "": a URI reference`:          forwarder(func(c *relay.Config) { c.Source = "" }),
		`Source "a\nb"`:                       forwarder(func(c *relay.Config) { c.Source = "a\nb" }),
		"PublishTimeout -1ns":                 forwarder(func(c *relay.Config) { c.PublishTimeout = -1 }),
		"more than the PublishTimeout":        forwarder(as, bus.Timeout(time.Second)),
		`ContentType "a\n"`:                   forwarder(func(c *relay.Config) { c.ContentType = "a\n" }),
		"Routes is empty":                     routes(),
		"by relay.To, not as a zero value":    routes(relay.Route{}),
		"Recipients: a name is empty":         forwarder(func(c *relay.Config) { c.Recipients = []string{""} }),
		"already has a route":                 routes(relay.To[placed]("orders"), relay.To[placed]("orders")),
		"the destination is empty":            routes(relay.To[placed]("")),
		`DataSchema "order"`:                  routes(relay.To[placed]("d", relay.DataSchema("order"))),
		"option 0 is nil":                     routes(relay.To[placed]("d", nil)),
		"passed by value":                     routes(relay.To[*placed]("d")),
		"DestinationFunc takes relay_test.ot": routes(relay.To[placed]("", elsewhere)),
		"MapPayload makes relay_test.other":   routes(relay.To[placed]("d", relay.MapPayload[placed, other](nil))),
		"BatchSize 2000":                      forwarder(as, bus.BatchSize(2000)),
		"option 4 is nil":                     forwarder(as, nil),
	}
	for want, consumer := range tests {
		if _, err := bus.NewRegistry(consumer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	for _, c := range []bus.Consumer{
		forwarder(as, bus.Aliases("b"), bus.BatchSize(1)),
		routes(relay.To[placed]("orders"), relay.To[other]("o", relay.PayloadAliases("o1", "o2"))),
	} {
		if _, err := bus.NewRegistry(c); err != nil {
			t.Errorf("got %v, want none", err)
		}
	}
	if c := forwarder(as).Config(); c.BatchSize != 256 || c.Concurrency != 4 || c.Timeout != 10*time.Second || !c.Forwards {
		t.Errorf("defaults: got %+v", c)
	}
}

// consume has a relay publish messages, and returns what becomes of each.
func consume(t *testing.T, c bus.Consumer, n int) []error {
	t.Helper()
	batch := make([]*bus.Message, n)
	for i := range batch {
		batch[i] = &bus.Message{PayloadType: "order.placed", Payload: fmt.Appendf(nil, `{"id":"%d"}`, i)}
	}
	return access.ConsumeBatch(t.Context(), c, bus.JSON{}, batch)
}

func TestAnswersThatDoNotFit(t *testing.T) {
	t.Parallel()
	pub := &answers{errs: []error{nil}}
	c := relay.NewForwarder("c", pub, relay.Config{Source: "/shop", Routes: []relay.Route{relay.To[placed]("orders")}})
	for i, err := range consume(t, c, 3) {
		if err == nil || !strings.Contains(err.Error(), "1 results for 3 records") {
			t.Errorf("message %d: got %v, want an error", i, err)
		}
	}
	pub.errs = nil
	for i, err := range consume(t, c, 3) {
		if err != nil {
			t.Errorf("message %d: got %v, want none", i, err)
		}
	}
}

// TestWaitsGrowWithTheTimeADestinationIsMissing, and begin anew once it was there.
func TestWaitsGrowWithTheTimeADestinationIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pub := &answers{errs: []error{fmt.Errorf("%w: no stream", broker.ErrNoDestination)}}
		var circuit outbox.Circuit
		c := relay.NewForwarder("c", pub, relay.Config{Source: "/shop", Circuit: &circuit, Routes: []relay.Route{relay.To[placed]("orders")}})
		for _, want := range []time.Duration{1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
			v := bus.OutcomeOf(consume(t, c, 1)[0])
			if v.Outcome != bus.Snoozed || v.Delay != want*time.Second || !errors.Is(v.Err, broker.ErrNoDestination) {
				t.Errorf("got %s for %s, want it snoozed for %ds", v.Outcome, v.Delay, want)
			}
			<-time.After(v.Delay)
		}
		pub.errs = nil
		if err := consume(t, c, 1)[0]; err != nil {
			t.Error(err)
		}
		pub.errs = []error{broker.ErrNoDestination}
		if v := bus.OutcomeOf(consume(t, c, 1)[0]); v.Delay != time.Second {
			t.Errorf("anew: got %s, want 1s", v.Delay)
		}
		if _, _, open := circuit.Tripped(); open {
			t.Error("circuit: got it open, want it closed")
		}
	})
}

// TestIDsForBrokers: a message has the same one each time, and another for each source, destination, relay and consumer
// that it is for.
func TestIDsForBrokers(t *testing.T) {
	t.Parallel()
	id := func(source, destination, name, stored string) string {
		pub := &answers{}
		c := relay.NewForwarder(name, pub, relay.Config{Source: source, Recipients: []string{"x", "old", "older"}, Structured: true,
			Routes: []relay.Route{relay.To[placed](destination)}})
		access.ConsumeBatch(t.Context(), c, bus.JSON{}, []*bus.Message{{PayloadType: "order.placed", Payload: []byte(`{}`), ConsumerAlias: stored}})
		return pub.got[0].ID
	}
	ids := make(map[string]bool)
	for range 2 {
		for _, name := range []string{"a", "b/c"} {
			for _, stored := range []string{"", "old", "older"} {
				ids[id("/shop", "orders", name, stored)] = true
			}
		}
		ids[id("/bank", "orders", "a", "")], ids[id("/shop", "facts", "a", "")] = true, true
	}
	if len(ids) != 8 {
		t.Errorf("got %d ids, want 8: %v", len(ids), ids)
	}
}

// slow is a publisher that takes its time.
type slow struct{ has bool }

func (s *slow) Publish(context.Context, []broker.Record) []error {
	<-time.After(time.Second)
	s.has = true
	return nil
}

// TestAMessageIsDoneOnceTheBrokerHasIt, and not before.
func TestAMessageIsDoneOnceTheBrokerHasIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pub := new(slow)
		c := relay.NewForwarder("c", pub, relay.Config{Source: "/shop", Routes: []relay.Route{relay.To[placed]("orders")}})
		if err := consume(t, c, 1)[0]; err != nil || !pub.has {
			t.Errorf("got it done with %v before the broker had it", err)
		}
		<-time.After(time.Minute)
	})
}

// TestEachAnswerIsForItsRecord.
func TestEachAnswerIsForItsRecord(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	pub := &answers{errs: []error{nil, fmt.Errorf("%w: 2 MB", broker.ErrRejected), broker.ErrNoDestination, nil, odd,
		broker.ErrUnavailable, context.DeadlineExceeded}}
	var circuit outbox.Circuit
	c := relay.NewForwarder("c", pub, relay.Config{Source: "/shop", Circuit: &circuit, Routes: []relay.Route{relay.To[placed]("orders")}})
	errs := consume(t, c, len(pub.errs))
	for i, want := range []bus.Outcome{bus.Done, bus.Condemned, bus.Snoozed, bus.Done, bus.Errored, bus.Snoozed, bus.Snoozed} {
		if got := bus.OutcomeOf(errs[i]).Outcome; got != want {
			t.Errorf("message %d: got %s, want %s", i, got, want)
		}
	}
	if _, _, open := circuit.Tripped(); open {
		t.Error("circuit: got it open, though others were answered")
	}
	pub.errs = pub.errs[len(pub.errs)-2:]
	for i, err := range consume(t, c, 2) {
		if got := bus.OutcomeOf(err).Outcome; got != bus.Released {
			t.Errorf("message %d, without any answer: got %s, want released", i, got)
		}
	}
	if _, _, open := circuit.Tripped(); !open {
		t.Error("circuit: got it closed, want it open")
	}
}

// TestALostConnectionOpensTheCircuit, and writes nothing to what waits, wherever it goes. Once it is back no destination is in doubt.
func TestALostConnectionOpensTheCircuit(t *testing.T) {
	t.Parallel()
	var circuit outbox.Circuit
	pub := &answers{errs: []error{broker.ErrUnavailable, fmt.Errorf("dial: %w", broker.ErrDisconnected), broker.ErrDisconnected}}
	to := relay.DestinationFunc(func(_ *bus.Message, p placed) (string, error) { return "orders." + p.ID, nil })
	c := relay.NewForwarder("c", pub, relay.Config{Source: "/shop", Circuit: &circuit, Routes: []relay.Route{relay.To[placed]("", to)}})
	for i, err := range consume(t, c, 3)[1:] {
		if got := bus.OutcomeOf(err).Outcome; got != bus.Released {
			t.Errorf("message %d: got %s, want released", i+1, got)
		}
	}
	if _, _, open := circuit.Tripped(); !open {
		t.Error("circuit: got it closed, want it open")
	}
	circuit.Reset()
	pub.errs = nil
	for i, err := range consume(t, c, 3) {
		if err != nil {
			t.Errorf("message %d once the connection is back: got %v, want done", i, err)
		}
	}
}

// silences is a publisher some of whose destinations do not answer.
type silences struct {
	silent map[string]bool
	sent   map[string]int
}

func (s *silences) Publish(_ context.Context, records []broker.Record) []error {
	errs := make([]error, len(records))
	for i, r := range records {
		if s.sent[r.Destination]++; s.silent[r.Destination] || s.silent[r.Destination+"/"+r.Key] {
			errs[i] = broker.ErrUnavailable
		}
	}
	return errs
}

// refunded goes to a destination of its own.
type refunded struct {
	ID string `json:"id"`
}

func (refunded) PayloadType() string { return "order.refunded" }

// TestTheCircuitOpensOnceNoDestinationAnswers, and not before. Of one that does not, while another does, one message at a time is sent.
// Promise: relay-destination
func TestTheCircuitOpensOnceNoDestinationAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var circuit outbox.Circuit
		pub := &silences{silent: map[string]bool{"refunds": true}, sent: make(map[string]int)}
		c := relay.NewForwarder("c", pub, relay.Config{Source: "/shop", Circuit: &circuit,
			Routes: []relay.Route{relay.To[placed]("orders"), relay.To[refunded]("refunds")}})
		step := func(want ...bus.Outcome) {
			t.Helper()
			var batch []*bus.Message
			for i := range want {
				batch = append(batch, &bus.Message{PayloadType: []string{"order.refunded", "order.placed"}[min(i/2, 1)], Payload: []byte(`{}`)})
			}
			errs := access.ConsumeBatch(t.Context(), c, bus.JSON{}, batch)
			errs = append(errs, make([]error, len(batch)-len(errs))...)
			for i, want := range want {
				got := bus.OutcomeOf(errs[i])
				if got.Outcome != want || want == bus.Snoozed && (got.Delay < time.Second || got.Delay > 30*time.Second) {
					t.Errorf("message %d: got %s for %s, want %s", i, got.Outcome, got.Delay, want)
				}
			}
		}
		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			step(bus.Snoozed, bus.Snoozed, bus.Done)
			<-time.After(time.Second)
		}
		if n := pub.sent["refunds"]; n < 20 || n > 30 { // two at first, and then after 1, 2, 4, 8 and 16 s, and every 30 s
			t.Errorf("refunds: got %d sent in 10 minutes, want one every 30 s", n)
		}
		if _, _, open := circuit.Tripped(); open {
			t.Error("circuit: got it open, though orders are answered")
		}
		pub.silent["orders"] = true
		step(bus.Snoozed, bus.Snoozed, bus.Snoozed)
		if _, _, open := circuit.Tripped(); !open {
			t.Error("circuit: got it closed, though nothing answers")
		}
		clear(pub.silent)
		circuit.Reset()
		step(bus.Done, bus.Done, bus.Done)
	})
}

// TestAnUnansweredKeyDoesNotDelayOthers: a partition of a topic has no leader.
// Promise: relay-destination
func TestAnUnansweredKeyDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pub := &silences{silent: map[string]bool{"orders/a": true}, sent: make(map[string]int)}
		c := relay.NewForwarder("c", pub, relay.Config{Source: "/shop", Routes: []relay.Route{relay.To[placed]("orders")}})
		for range 100 {
			var batch []*bus.Message
			for _, key := range []string{"a", "b", "a"} {
				batch = append(batch, &bus.Message{PayloadType: "order.placed", Payload: []byte(`{}`), OrderingKey: key})
			}
			errs := access.ConsumeBatch(t.Context(), c, bus.JSON{}, batch)
			if bus.OutcomeOf(errs[0]).Outcome != bus.Snoozed || errs[1] != nil || bus.OutcomeOf(errs[2]).Outcome != bus.Snoozed {
				t.Errorf("got %v, want the second done and the others snoozed", errs)
			}
			<-time.After(time.Second)
		}
		if n := pub.sent["orders"]; n > 100+20 {
			t.Errorf("got %d sent, want 100 of the one key and a few of the other", n)
		}
	})
}

// returns is a publisher whose broker comes back.
type returns struct {
	answers
	back func()
}

func (r *returns) OnReconnect(f func()) { r.back = f }

func TestTheCircuitClosesOnceTheBrokerIsBack(t *testing.T) {
	t.Parallel()
	pub, circuit := &returns{}, new(outbox.Circuit)
	relay.NewForwarder("c", pub, relay.Config{Source: "/shop", Circuit: circuit, Routes: []relay.Route{relay.To[placed]("orders")}})
	_ = circuit.Trip(errors.New("away"))
	if pub.back == nil {
		t.Fatal("nobody asked for it")
	}
	pub.back()
	if _, reason, open := circuit.Tripped(); open {
		t.Errorf("got the circuit open for %v, want it closed", reason)
	}
}

// TestADestinationThatIsMissingIsWarnedOf: now and then, however many messages wait for it.
func TestADestinationThatIsMissingIsWarnedOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		missing := fmt.Errorf("%w: no stream", broker.ErrNoDestination)
		pub := &answers{errs: []error{missing, missing, nil, missing}}
		destination := relay.DestinationFunc(func(m *bus.Message, _ placed) (string, error) { return []string{"a", "b", "c"}[m.ID[15]%3], nil })
		c := relay.NewForwarder("c", pub, relay.Config{Source: "/shop", Routes: []relay.Route{relay.To[placed]("", destination)}})
		var lines []string
		log := middleware.Log(slog.New(slog.NewTextHandler(writer(func(line string) { lines = append(lines, line) }), nil)))
		began := time.Now()
		for time.Since(began) < 11*time.Minute {
			batch := make([]*bus.Message, len(pub.errs)) // of a, b, c, a
			for i := range batch {
				batch[i] = &bus.Message{ID: uuid.UUID{15: byte(i)}, PayloadType: "order.placed", Payload: []byte(`{}`)}
			}
			errs := access.ConsumeBatch(t.Context(), c, bus.JSON{}, batch)
			for i, m := range batch {
				if err := bus.OutcomeOf(errs[i]).Err; i != 2 && (!errors.Is(err, broker.ErrNoDestination) || err.Error() != missing.Error()) {
					t.Errorf("got %v, want it to stay what it is", err)
				}
				_ = log(func(context.Context, *bus.Message) error { return errs[i] })(t.Context(), m)
			}
			<-time.After(10 * time.Second)
		}
		warnings := slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "WARN") })
		if len(warnings) != 6 { // at the beginning, and after 5 and 10 minutes, of a and b
			t.Errorf("got %d warnings, want 6:\n%s", len(warnings), strings.Join(warnings, ""))
		}
		for _, line := range warnings {
			if !strings.Contains(line, "message snoozed") || !strings.Contains(line, "no stream") || !strings.Contains(line, "consumer=") {
				t.Errorf("got %s, want it to say what is missing", line)
			}
		}
	})
}

type writer func(line string)

func (w writer) Write(line []byte) (int, error) { w(string(line)); return len(line), nil }

// TestAReplayIsPublishedLikeAnyOther: who gets it beyond the broker may never have had it.
func TestAReplayIsPublishedLikeAnyOther(t *testing.T) {
	t.Parallel()
	var sent []string
	for _, replay := range []bool{false, true} {
		pub := &answers{}
		c := relay.NewForwarder("c", pub, relay.Config{Source: "/shop", Routes: []relay.Route{relay.To[placed]("orders")}})
		access.ConsumeBatch(t.Context(), c, bus.JSON{},
			[]*bus.Message{{PayloadType: "order.placed", Payload: []byte(`{}`), Headers: map[string]string{"a": "b"}, Replay: replay}})
		sent = append(sent, fmt.Sprintf("%+v", pub.got))
	}
	if sent[0] != sent[1] {
		t.Errorf("got %s of a replay, want %s", sent[1], sent[0])
	}
}
