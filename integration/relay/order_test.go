package relay_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
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
