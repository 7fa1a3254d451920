package schedule_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// TestALayerThatHangsDoesNotHoldRun, and neither does a hanging telemetry.
func TestALayerThatHangsDoesNotHoldRun(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		for _, where := range []string{"layer", "telemetry"} {
			var calls atomic.Int64
			release := make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			hang := func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, b *bus.Batch) error { calls.Add(1); <-release; return next(ctx, b) }
			}
			a := testapp.New(t, db, testapp.Consumed("c"))
			config := quiet()
			producer := a.Producer
			if where == "layer" {
				layers := outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{hang}}
				producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, layers))
			} else {
				config.Telemetry = hang
			}
			testapp.Must[int64](t)(a.Scheduler().Upsert(t.Context(), db, order{ID: "1"}, "@hourly", "UTC", schedule.Name("n")))
			makeDue(a, time.Second)
			p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, producer, config))
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			testapp.Eventually(t, "it is called", func() bool { return calls.Load() > 0 })
			cancel()
			select {
			case <-ended:
				free()
			case <-time.After(5 * time.Second):
				t.Errorf("%s: Run has not returned 5 s after its context ended", where)
				free()
				<-ended
			}
			a.Exec("DELETE FROM scheduled_messages")
		}
	})
}
