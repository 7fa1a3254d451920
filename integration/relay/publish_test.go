package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// TestEachRecordOfABatchHasItsOwnResult: of a batch some are refused, some have nowhere to go, and some
// fail; the others are published once.
// Promise: relay-batch
func TestEachRecordOfABatchHasItsOwnResult(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 256
		b := newBroker()
		b.failWith(func(r broker.Record) error {
			switch body := string(r.Body); {
			case strings.Contains(body, `"n":7}`):
				return fmt.Errorf("%w: 2 MB", broker.ErrRejected)
			case strings.Contains(body, `"n":8}`):
				return fmt.Errorf("%w: no stream", broker.ErrNoDestination)
			case strings.Contains(body, `"n":9}`):
				return errors.New("odd")
			}
			return nil
		})
		a := testapp.New(t, db, publishes(b, bus.MaxAttempts(2)))
		a.ProduceMany(n)
		a.Start(testapp.Fast())
		testapp.Eventually(t, "all but one are gone", func() bool { return len(a.Poisoned()) == 2 && len(a.Pending()) == 1 })
		for _, row := range a.Poisoned() {
			if want := map[bool]int{true: 1, false: 2}[strings.Contains(row.Payload, `"n":7`)]; row.Attempts != want {
				t.Errorf("poisoned %s: got %d attempts (%s), want %d", row.Payload, row.Attempts, row.Reason, want)
			}
		}
		if row := a.Pending()[0]; row.Attempts != 0 || row.Errors != "" || !strings.Contains(row.Payload, `"n":8`) {
			t.Errorf("what has nowhere to go: got %+v, want it untouched but for when it is due", row)
		}
		ids := make(map[string]int)
		for _, r := range b.all() {
			ids[r.ID]++
		}
		if len(ids) != n-3 || len(b.all()) != n-3 {
			t.Errorf("published: got %d of %d, want each of %d once", len(ids), len(b.all()), n-3)
		}
		b.failWith(nil)
		testapp.Eventually(t, "the destination is there", func() bool { return len(a.Pending()) == 0 })
	})
}

// TestAnOutageWritesNothing: while the broker is away no row of what waits is changed, no
// attempt is counted, and few calls are made; afterwards all is published.
func TestAnOutageWritesNothing(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]error{"unavailable": fmt.Errorf("dial: %w", broker.ErrUnavailable),
		"a timeout": context.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				const n = 2000
				b := newBroker()
				b.failWith(func(broker.Record) error { return away })
				var circuit outbox.Circuit
				a := testapp.New(t, db, publishesWith(b, relay.Config{Circuit: &circuit}, bus.MaxAttempts(1)))
				a.ProduceMany(n)
				before := a.Pending()
				a.Start(testapp.Fast())
				testapp.Eventually(t, "a probe has failed", func() bool {
					since, _, open := circuit.Tripped()
					return open && time.Since(since) > 1500*time.Millisecond || len(a.Poisoned()) > 0
				})
				testapp.Eventually(t, "all was given back", func() bool { return a.Count("SELECT count(*) FROM message_claims") == 0 })
				after := a.Pending()
				if len(after) != n {
					t.Fatalf("got %d that wait, want %d", len(after), n)
				}
				changed := 0
				for i := range after {
					if after[i] != before[i] {
						changed++
					}
				}
				if changed > 0 || len(a.Poisoned()) > 0 {
					t.Errorf("rows changed: got %d, and %d poisoned, want none", changed, len(a.Poisoned()))
				}
				if calls := b.calls.Load(); calls > 12 {
					t.Errorf("calls: got %d, want a few", calls)
				}
				b.failWith(nil)
				circuit.Reset()
				testapp.Eventually(t, "all is published", a.Empty)
				if got := len(b.all()); got != n {
					t.Errorf("published: got %d, want %d", got, n)
				}
			})
		})
	}
}

// TestAnUnavailableDestinationDoesNotDelayOthers: more of its messages than a batch has are in front, and come again and again.
// Promise: relay-destination
func TestAnUnavailableDestinationDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const refunds, orders = 300, 1000
		b := newBroker()
		var tried atomic.Int64
		b.failWith(func(r broker.Record) error {
			if r.Destination == "refunds" {
				tried.Add(1)
				return fmt.Errorf("its leader is being elected: %w", broker.ErrUnavailable)
			}
			return nil
		})
		a := testapp.New(t, db, relay.NewForwarder("to-broker", b,
			relay.Config{Source: shop, Routes: []relay.Route{relay.To[order]("orders"),
				relay.To[testapp.Refund]("refunds")}}, bus.MaxAttempts(1), bus.Concurrency(1)))
		for i := range refunds {
			a.Produce(testapp.Refund{ID: fmt.Sprint(i)})
		}
		a.Start(testapp.Fast())
		testapp.Eventually(t, "all refunds wait", func() bool {
			return a.Count("SELECT count(*) FROM consumer_messages WHERE available_after > created_at") == refunds
		})
		a.ProduceMany(orders)
		testapp.Eventually(t, "all orders are published", func() bool { return len(b.all()) == orders })
		if n := tried.Load(); n > refunds+10 {
			t.Errorf("refunds: got %d tried, want each once at most and then a few", n)
		}
		testapp.Eventually(t, "the refunds alone wait", func() bool { return len(a.Pending()) == refunds && len(a.Poisoned()) == 0 })
		for _, row := range a.Pending() {
			if row.Attempts != 0 || row.Errors != "" {
				t.Fatalf("got %+v, want no attempt", row)
			}
		}
		b.failWith(nil)
		testapp.Eventually(t, "the refunds are published", a.Empty)
		if got := len(b.all()); got != orders+refunds {
			t.Errorf("published: got %d, want %d", got, orders+refunds)
		}
	})
}

// TestAPublisherThatHangs is cut off, and counts as one that does not answer.
func TestAPublisherThatHangs(t *testing.T) {
	t.Parallel()
	a := testapp.New(t, testdb.SQLite(t))
	var circuit outbox.Circuit
	hang := publisher(func(ctx context.Context, records []broker.Record) []error {
		<-ctx.Done()
		errs := make([]error, len(records))
		for i := range errs {
			errs[i] = fmt.Errorf("publish: %w", context.Cause(ctx))
		}
		return errs
	})
	a = testapp.New(t, a.DB, publishesWith(hang, relay.Config{Circuit: &circuit, PublishTimeout: 50 * time.Millisecond}))
	a.ProduceMany(3)
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "the circuit is open", func() bool { _, _, open := circuit.Tripped(); return open })
	r.MustStop()
	for _, row := range a.Pending() {
		if row.Attempts != 0 {
			t.Errorf("got %+v, want no attempt", row)
		}
	}
}

// TestAPublisherThatIgnoresItsTimeout is given up, and costs no attempt either.
func TestAPublisherThatIgnoresItsTimeout(t *testing.T) {
	t.Parallel()
	var circuit outbox.Circuit
	free := make(chan struct{})
	t.Cleanup(func() { close(free) })
	stuck := publisher(func(context.Context, []broker.Record) []error { <-free; return nil })
	a := testapp.New(t, testdb.SQLite(t), publishesWith(stuck, relay.Config{Circuit: &circuit, PublishTimeout: 50 * time.Millisecond},
		bus.Timeout(100*time.Millisecond), bus.MaxAttempts(1)))
	a.ProduceMany(3)
	config := testapp.Fast()
	config.DrainTimeout = 100 * time.Millisecond
	r := a.Start(config)
	testapp.Eventually(t, "it is given up", func() bool { return r.Stats().Abandoned > 0 || len(a.Poisoned()) > 0 })
	_ = r.Wait()
	if rows := a.Pending(); len(rows) != 3 {
		t.Errorf("got %d that wait and %d poisoned, want 3", len(rows), len(a.Poisoned()))
	}
	for _, row := range a.Pending() {
		if row.Attempts != 0 {
			t.Errorf("got %+v, want no attempt", row)
		}
	}
}

// TestAStopIsNoOutage: what is cut off since the processor stops opens no circuit.
func TestAStopIsNoOutage(t *testing.T) {
	t.Parallel()
	var circuit outbox.Circuit
	called := make(chan struct{}, 8)
	hang := publisher(func(ctx context.Context, records []broker.Record) []error {
		called <- struct{}{}
		<-ctx.Done()
		errs := make([]error, len(records))
		for i := range errs {
			errs[i] = fmt.Errorf("%w: %w", broker.ErrUnavailable, ctx.Err())
		}
		return errs
	})
	a := testapp.New(t, testdb.SQLite(t), publishesWith(hang, relay.Config{Circuit: &circuit}))
	a.ProduceMany(3)
	config := testapp.Fast()
	config.DrainTimeout = 10 * time.Millisecond
	r := a.Start(config)
	<-called
	_ = r.Wait()
	if _, reason, open := circuit.Tripped(); open {
		t.Errorf("circuit: got it open for %v, want it closed", reason)
	}
	for _, row := range a.Pending() {
		if row.Attempts != 0 {
			t.Errorf("got %+v, want no attempt", row)
		}
	}
}

type publisher func(ctx context.Context, records []broker.Record) []error

// Publish implements broker.Publisher.
func (p publisher) Publish(ctx context.Context, records []broker.Record) []error {
	return p(ctx, records)
}

// TestAProbeThatIsNotTakenClosesTheCircuit: the broker has answered.
func TestAProbeThatIsNotTakenClosesTheCircuit(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]error{"refused": broker.ErrRejected, "nowhere to go": broker.ErrNoDestination,
		"another": errors.New("odd")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var circuit outbox.Circuit
			var calls atomic.Int64
			b := newBroker()
			b.failWith(func(r broker.Record) error {
				switch calls.Add(1) {
				case 1:
					return broker.ErrUnavailable
				case 2:
					return fate
				case 3:
					if _, _, open := circuit.Tripped(); open {
						t.Error("the third record is a probe, too: the circuit is open")
					}
				}
				return nil
			})
			a := testapp.New(t, testdb.SQLite(t), publishesWith(b, relay.Config{Circuit: &circuit}, bus.BatchSize(1), bus.Concurrency(1)))
			a.ProduceMany(20)
			a.Start(testapp.Fast())
			testapp.Eventually(t, "the others are published", func() bool { return len(b.all()) >= 19 })
		})
	}
}

// TestSlowRoutesAreNoOutage: a batch takes longer than its timeout, since the functions of its routes do.
func TestSlowRoutesAreNoOutage(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		const n, each = 256, 50 * time.Millisecond
		b, circuit := newBroker(), new(outbox.Circuit)
		a := newApp(slowly(b, circuit, func(order) (time.Duration, error) { return each, nil }))
		for i := range n {
			a.ProduceAt(ctx, order{ID: fmt.Sprint(i)})
		}
		begun := time.Now()
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "all are published", func() bool {
			if _, reason, open := circuit.Tripped(); open {
				t.Fatalf("circuit: got it open for %v, want it closed", reason)
			}
			return a.Empty()
		})
		r.MustStop()
		if took := time.Since(begun); len(b.all()) != n || took > 2*n*each {
			t.Errorf("got %d published after %s, want %d after little more than the %s of the functions", len(b.all()), took, n, n*each)
		}
	})
}

// TestARouteThatTakesTooLongFailsItsMessage, and neither the others of its batch nor the broker.
func TestARouteThatTakesTooLongFailsItsMessage(t *testing.T) {
	slow := errors.New("the key service is slow")
	for says, err := range map[string]error{"relay: route and upcasters": nil, slow.Error(): slow} {
		t.Run(says, func(t *testing.T) { routeThatTakesTooLong(t, err, says) })
	}
}

func routeThatTakesTooLong(t *testing.T, err error, says string) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		b, circuit := newBroker(), new(outbox.Circuit)
		a := newApp(slowly(b, circuit, func(o order) (time.Duration, error) {
			if o.ID == "2" {
				return 11 * time.Second, err // more than the timeout of 10 s
			}
			return time.Millisecond, nil
		}, bus.MaxAttempts(2)))
		for i := range 5 {
			a.ProduceAt(ctx, order{ID: fmt.Sprint(i)})
		}
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "it is poisoned and the others are published", func() bool {
			if _, reason, open := circuit.Tripped(); open {
				t.Fatalf("circuit: got it open for %v, want it closed", reason)
			}
			return a.Empty()
		})
		r.MustStop()
		if rows := a.Poisoned(); len(rows) != 1 || rows[0].Attempts != 2 || !strings.Contains(rows[0].Errors, says) ||
			len(b.all()) != 4 {
			t.Errorf("got %d published and poisoned %+v, want 4, and the one after 2 attempts", len(b.all()), rows)
		}
	})
}

// slowly is a forwarder of orders whose MapPayload takes as long as it is told.
func slowly(
	b broker.Publisher, circuit *outbox.Circuit, takes func(order) (time.Duration, error), options ...bus.ConsumerOption,
) bus.Consumer {
	route := relay.To[order]("orders", relay.MapPayload(func(o order) (public, error) {
		wait, err := takes(o)
		<-time.After(wait)
		return public{Number: o.ID}, err
	}))
	return relay.NewForwarder("to-broker", b, relay.Config{Source: shop, Circuit: circuit, Routes: []relay.Route{route}},
		append(options, bus.Concurrency(1))...)
}

// public is what others are told of an order.
type public struct {
	Number string `json:"number"`
}

func (public) PayloadType() string { return "public.order" }

// keyedRefund knows its key.
type keyedRefund struct {
	ID string `json:"id"`
}

func (keyedRefund) PayloadType() string   { return "order.refunded" }
func (k keyedRefund) OrderingKey() string { return "refund:" + k.ID }

// TestRoutes: one relay takes several payload types, and each goes its own way.
func TestRoutes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		to := relay.NewForwarder("to-broker", b, relay.Config{Source: shop, Structured: true, Recipients: []string{"ship", "a, b",
			"bill"}, Routes: []relay.Route{relay.To[order]("", relay.DestinationFunc(func(m *bus.Message, o order) (string, error) {
			if o.ID == "panic" {
				panic("no")
			}
			return fmt.Sprintf("orders.%d", o.N), nil
		}), relay.MapPayload(func(o order) (public, error) { return public{Number: o.ID}, nil })), relay.To[keyedRefund]("refunds",
			relay.PayloadAliases("refund"))}}, bus.MaxAttempts(1), bus.Aliases("bill"))
		a := testapp.New(t, db, to)
		a.Produce(order{ID: "1", N: 4}, outbox.OrderingKey("customer"))
		a.Produce(order{ID: "panic"})
		a.Produce(keyedRefund{ID: "2"})
		a.Exec("UPDATE consumer_messages SET consumer_type = 'bill', payload_type = 'refund' WHERE payload_type = 'order.refunded'")
		a.Start(testapp.Fast())
		testapp.Eventually(t, "all are gone", func() bool { return a.Empty() && len(a.Poisoned()) == 1 })
		records := make(map[string]broker.Record)
		for _, r := range b.all() {
			records[r.Destination] = r
		}
		for destination, want := range map[string]struct{ key, parts string }{
			"orders.4": {"customer",
				`"type":"public.order" "data":{"number":"1"} "partitionkey":"customer" "consumers":"ship,a%2C+b,bill" "datacontenttype":"application/json"`},
			"refunds": {"refund:2", `"type":"order.refunded" "data":{"id":"2"} "partitionkey":"refund:2" "consumers":"bill"`},
		} {
			r := records[destination]
			if r.Key != want.key || r.ContentType != "application/cloudevents+json" || len(r.Attributes) != 0 {
				t.Errorf("%s: got %+v, want key %q, and all of it in the body", destination, r, want.key)
			}
			for part := range strings.SplitSeq(want.parts, ` "`) {
				if !strings.Contains(string(r.Body), strings.TrimPrefix(part, `"`)) {
					t.Errorf("%s: got %s, want %s in it", destination, r.Body, part)
				}
			}
		}
	})
}
