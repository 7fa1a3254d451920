package relay_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// keyedOrder gives orders one key.
type keyedOrder struct {
	N int `json:"n"`
}

func (keyedOrder) PayloadType() string { return "keyed.order" }
func (keyedOrder) OrderingKey() string { return "k" }

// TestOrderAcrossAFailure: with bus.Ordered the records of a key are published in order, whatever fails in between.
func TestOrderAcrossAFailure(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"the publisher", "unavailable", "no destination", "DestinationFunc"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				b := newBroker()
				var failures atomic.Int64
				fails := func(n int) bool { return n == 1 && failures.Add(1) <= 2 }
				b.failWith(func(r broker.Record) error {
					if !strings.Contains(string(r.Body), `"n":1}`) || what == "DestinationFunc" {
						return nil
					}
					if !fails(1) {
						return nil
					}
					switch what {
					case "unavailable":
						return broker.ErrUnavailable
					case "no destination":
						return broker.ErrNoDestination
					}
					return errors.New("odd")
				})
				c := relay.NewForwarder("to-broker", b, relay.Config{Source: shop,
					Routes: []relay.Route{relay.To[keyedOrder]("orders", relay.DestinationFunc(func(_ *bus.Message, o keyedOrder) (string, error) {
						if what == "DestinationFunc" && fails(o.N) {
							return "", errors.New("no table")
						}
						return "orders", nil
					}))}}, bus.AttemptDelay(1), bus.Ordered(bus.BlockKey))
				a := testapp.New(t, db, c)
				for n := range 6 {
					a.Produce(keyedOrder{n})
				}
				a.Start(testapp.Fast())
				testapp.Eventually(t, "all is published", func() bool { return a.Empty() && len(b.all()) >= 6 })
				var order []string
				for _, r := range b.all() {
					order = append(order, string(r.Body))
				}
				if got := strings.Join(order, ""); got != `{"n":0}{"n":1}{"n":2}{"n":3}{"n":4}{"n":5}` {
					t.Errorf("got %s", got)
				}
			})
		})
	}
}

// TestAnOrderedForwarderReadsTheKeyOfAStoredPayload: neither a schedule nor a record without a key has another.
func TestAnOrderedForwarderReadsTheKeyOfAStoredPayload(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		in, out := newBroker(), newBroker()
		forwarder := relay.NewForwarder("on", out, relay.Config{Source: "/on", Routes: []relay.Route{relay.To[fareV2]("fares")}},
			bus.Ordered(bus.BlockKey))
		s := receives(t, db, inbox.NewReceiver("from-shop", in.subscribe(), inbox.Accept[fareV2]()), forwarder)
		scheduler := s.Scheduler()
		id := testapp.Must[int64](t)(scheduler.Create(t.Context(), db, fareV2{1}, "@yearly", "UTC"))
		testapp.OK(t, scheduler.Trigger(t.Context(), db, id))
		fires := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, s.Registry, s.Producer, schedule.ProcessorConfig{}))
		if n := testapp.Must[int](t)(fires.FireDue(t.Context())); n != 1 {
			t.Errorf("got %d schedules fired, want 1", n)
		}
		record := fare("1", "1", `{"amount":7}`)
		record.Key = ""
		in.put(record)
		s.run()
		s.Start(testapp.Fast())
		testapp.Eventually(t, "both are published", func() bool { return len(out.all()) == 2 || len(s.Poisoned()) > 0 })
		var keys []string
		for _, record := range out.all() {
			keys = append(keys, record.Key)
		}
		if slices.Sort(keys); !slices.Equal(keys, []string{"k1", "k7"}) {
			t.Errorf("got the keys %q and poisoned %+v, want k1 and k7", keys, s.Poisoned())
		}
	})
}
