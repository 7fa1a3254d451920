package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestACrashedMessageIsNotBehindTheBacklogOfItsKey: it runs apart, and so is claimed apart. The clean messages of its key would
// take each place that the key has before that.
func TestACrashedMessageIsNotBehindTheBacklogOfItsKey(t *testing.T) {
	for _, crashes := range []int{1, 2} {
		for name, option := range map[string]bus.ConsumerOption{
			"KeyConcurrency": bus.KeyConcurrency(1), "KeyRateLimit": bus.KeyRateLimit(1, time.Second, 1),
		} {
			t.Run(fmt.Sprintf("%s, %d crashes", name, crashes), func(t *testing.T) {
				testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
					var ran, crashedAt, others atomic.Int64
					a := newApp(bus.Consume("c", func(ctx context.Context, o order) error {
						<-time.After(time.Second)
						switch ran.Add(1); o.ID {
						case "crashed":
							crashedAt.Store(ran.Load())
						case "other":
							others.Add(1)
						}
						return nil
					}, option))
					const backlog = 80
					for i := range backlog {
						a.ProduceAt(ctx, order{ID: "clean"}, outbox.OrderingKey("k"))
						if i == 0 {
							a.ProduceAt(ctx, order{ID: "crashed"}, outbox.OrderingKey("k"))
						}
					}
					for range 10 {
						a.ProduceAt(ctx, order{ID: "other"}, outbox.OrderingKey("another"))
					}
					a.Exec("UPDATE consumer_messages SET crashes = ? WHERE payload LIKE '%crashed%'", crashes)
					if name == "KeyConcurrency" {
						explained(t, ctx, a)
					}
					r := a.StartWith(ctx, outbox.ProcessorConfig{LeaseDuration: 3 * time.Second, PollInterval: time.Second / 2, Concurrency: 8})
					<-time.After(45 * time.Second)
					if crashedAt.Load() == 0 || crashedAt.Load() > 50 || others.Load() != 10 {
						t.Errorf("after 45 s the crashed message ran as %d of %d, and %d of another key ran: want it early, and 10",
							crashedAt.Load(), ran.Load(), others.Load())
					}
					r.MustStop()
				})
			})
		}
	}
}

// explained: Explain says of a clean message that a crashed one has the place.
func explained(t *testing.T, ctx context.Context, a *app) {
	t.Helper()
	for _, m := range a.Pending() {
		if !strings.Contains(m.Payload, "clean") || m.Crashes > 0 {
			continue
		}
		e, err := a.Admin().Explain(ctx, a.DB, m.ID)
		if want := `0 messages of key "k" are claimed, 1 that crashed have their places, and`; err != nil ||
			e.Reason != admin.KeyLimited || !strings.Contains(e.Text, want) {
			t.Errorf("Explain: got %q (%s), %v, want %q with %q", e.Reason, e.Text, err, admin.KeyLimited, want)
		}
		return
	}
	t.Error("no clean message is pending")
}
