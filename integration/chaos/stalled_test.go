//go:build unix

package chaos_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// errand is a message of the tests in this file.
type errand struct{}

func (errand) PayloadType() string { return "errand" }

// TestABacklogGoesOnAfterABlackHole cuts the only process off in the middle of a backlog,
// without a word: looks and claims time out, and what they have not seen must be found
// again at once when answers come.
func TestABacklogGoesOnAfterABlackHole(t *testing.T) {
	t.Parallel()
	const backlog, stalled, patience = 4000, 15 * time.Second, 20 * time.Second
	dsn := testdb.DirectDSN(t)
	direct := testdb.OpenPostgres(t, dsn)
	proxy, through, err := chaos.NewProxyTo(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	var ran atomic.Int64
	registry, err := bus.NewRegistry(bus.Consume("run", func(ctx context.Context, _ errand) error {
		<-time.After(200 * time.Millisecond)
		ran.Add(1)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Migrate(t.Context(), direct, bus.Tables{}); err != nil {
		t.Fatal(err)
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	items := make([]outbox.Item, backlog)
	for i := range items {
		items[i].Payload = errand{}
	}
	if _, err := producer.ProduceMany(t.Context(), direct, items...); err != nil {
		t.Fatal(err)
	}
	processor, err := outbox.NewProcessor(testdb.OpenPostgres(t, through), registry, outbox.ProcessorConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- processor.Run(ctx) }()
	within := func(what string, d time.Duration, condition func() bool) {
		t.Helper()
		late := time.After(d)
		for !condition() {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-late:
				t.Fatalf("%s: not within %s, %d of %d ran", what, d, ran.Load(), backlog)
			}
		}
	}
	within("the backlog begins", time.Minute, func() bool { return ran.Load() > 200 })
	proxy.Stall(true)
	<-time.After(stalled)
	before := ran.Load()
	proxy.Stall(false)
	// What was claimed before may still run; no more than that is in flight.
	within("the backlog goes on", patience, func() bool { return ran.Load() > before+1000 || ran.Load() >= backlog })
	stop()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
}
