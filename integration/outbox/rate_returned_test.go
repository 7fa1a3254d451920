package outbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// rates are five an hour, of a consumer and of a key.
func rates() map[string]bus.ConsumerOption {
	return map[string]bus.ConsumerOption{"rate": bus.RateLimit(5, time.Hour, 5), "key rate": bus.KeyRateLimit(5, time.Hour, 5)}
}

func produceKeyed(ctx context.Context, a *app, n int, options ...outbox.Option) {
	a.Helper()
	for i := range n {
		a.ProduceAt(ctx, order{ID: fmt.Sprint(i)}, append(options, outbox.OrderingKey("k"))...)
	}
}

// TestUnstartedMessagesAreReturnedToTheRateAtOnce: two hours later the rate has regained it anyway, and what another process has
// started since counts.
// Promise: limits
func TestUnstartedMessagesAreReturnedToTheRateAtOnce(t *testing.T) {
	for name, rate := range rates() {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var runs atomic.Int64
				a, b := newApp(testapp.Counting("c", &runs, rate)), newApp(testapp.Counting("c", &runs, rate))
				produceKeyed(ctx, a, 5, outbox.DeliverBy(time.Now().Add(time.Second), bus.Discarded))
				<-time.After(5 * time.Second)
				r := a.StartWith(ctx, outbox.ProcessorConfig{PollInterval: 10 * time.Second})
				testapp.Sooner(t, "the expired ones are discarded", a.Empty)
				<-time.After(2 * time.Hour)
				produceKeyed(ctx, b, 5)
				if n := steps(ctx, b, newProcessor(b, outbox.ProcessorConfig{})); n != 5 {
					t.Fatalf("the other process ran %d messages, want 5", n)
				}
				produceKeyed(ctx, b, 5)
				<-time.After(5 * time.Minute)
				r.MustStop()
				if n := runs.Load(); n != 5 {
					t.Errorf("within five minutes: got %d runs, want 5", n)
				}
			})
		})
	}
}

// TestASingleExpiredMessageDoesNotSpendTheRate: ProcessNext has no next claim that would return it.
// Promise: deadline
func TestASingleExpiredMessageDoesNotSpendTheRate(t *testing.T) {
	for name, rate := range rates() {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var runs atomic.Int64
				a := newApp(testapp.Counting("c", &runs, rate))
				produceKeyed(ctx, a, 5, outbox.DeliverBy(time.Now().Add(time.Second), bus.Discarded))
				<-time.After(5 * time.Second)
				produceKeyed(ctx, a, 6)
				if n := steps(ctx, a, newProcessor(a, outbox.ProcessorConfig{})); n != 10 || runs.Load() != 5 {
					t.Errorf("got %d messages, of which %d ran, want 10 and 5", n, runs.Load())
				}
			})
		})
	}
}
