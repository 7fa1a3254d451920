package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestKeyedAndKeylessTakeTurns: of one consumer with a backlog of both, whether an even or an odd number of consumers is busy.
func TestKeyedAndKeylessTakeTurns(t *testing.T) {
	for _, busy := range []int{1, 2, 3, 4} {
		t.Run(fmt.Sprint(busy), func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var keyed, keyless atomic.Int64
				var others []bus.Consumer
				consumer := bus.Consume("c", func(_ context.Context, o order) error {
					if o.ID == "keyless" {
						keyless.Add(1)
					} else {
						keyed.Add(1)
					}
					<-time.After(10 * time.Millisecond)
					return nil
				}, bus.Ordered(bus.BlockKey))
				for i := range busy - 1 {
					others = append(others, bus.Consume(fmt.Sprint("other", i), func(context.Context, refund) error {
						<-time.After(10 * time.Millisecond)
						return nil
					}))
				}
				a := newApp(slices.Concat(others, []bus.Consumer{consumer})...)
				before := newApp(slices.Concat(others, []bus.Consumer{testapp.Consumed("c")})...) // it did not go by keys
				for range 40 {
					var keyed, keyless []outbox.Item
					for i := range 50 {
						keyed = append(keyed, outbox.Item{Payload: order{ID: "keyed"}, Options: []outbox.Option{outbox.OrderingKey(fmt.Sprint(i))}})
						keyless = append(keyless, outbox.Item{Payload: order{ID: "keyless"}})
						if busy > 1 {
							keyless = append(keyless, outbox.Item{Payload: refund{}})
						}
					}
					testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(ctx, a.DB, keyed...))
					testapp.Must[[]outbox.Receipt](t)(before.Producer.ProduceMany(ctx, before.DB, keyless...))
				}
				r := a.StartWith(ctx, outbox.ProcessorConfig{Concurrency: 8, BatchSize: 50})
				testapp.Sooner(t, "half of one kind ran", func() bool { return max(keyed.Load(), keyless.Load()) > 1000 })
				r.Stop(nil)
				if keyed, keyless := keyed.Load(), keyless.Load(); min(keyed, keyless) < 150 {
					t.Errorf("got %d keyed and %d keyless, want a fair part of each", keyed, keyless)
				}
			})
		})
	}
}
