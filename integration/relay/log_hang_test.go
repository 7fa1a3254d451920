package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// quiet is a runner's configuration without a log.
func quiet(log *eventlog.Log) relay.RunnerConfig {
	return relay.RunnerConfig{Log: log, Logger: slog.New(slog.DiscardHandler)}
}

// mustEnd runs a part, waits until inside, stops it, and wants Run to return within 30 s. Then it lets go what hangs.
func mustEnd(t *testing.T, run func(context.Context) error, inside func() bool, free func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	testapp.Eventually(t, "the function is called", inside)
	cancel()
	select {
	case <-ended:
		free()
	case <-time.After(30 * time.Second):
		t.Error("Run has not returned 30 s after its context ended")
		free()
		<-ended
	}
}

// TestARouteThatHangsInALogForwarder does not keep Run from ending.
func TestARouteThatHangsInALogForwarder(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.SQLite(t))
	l.deposit(1, 1)
	var calls atomic.Int64
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	forwarder := relay.NewLogForwarder("ledger", newBroker(), relay.LogConfig{Source: "/bank",
		Routes: []relay.Route{relay.To[opened]("accounts"), relay.To[deposited]("accounts",
			relay.MapPayload(func(d deposited) (deposited, error) { calls.Add(1); <-release; return d, nil }))}})
	r := testapp.Must[*relay.Runner](t)(relay.NewRunner(l.DB, l.Registry, quiet(l.log), forwarder))
	mustEnd(t, r.Run, func() bool { return calls.Load() > 0 }, free)
}

// TestAnUpcasterThatHangsInALogForwarder does not keep Run from ending.
func TestAnUpcasterThatHangsInALogForwarder(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	l := newLedger(t, db)
	l.deposit(1, 1)
	var calls atomic.Int64
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[deposited](eventlog.Schema(2),
		eventlog.Upcaster(1, func(_ context.Context, text []byte) ([]byte, error) { calls.Add(1); <-release; return text, nil }))))
	registry := testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Events: types}.NewRegistry())
	producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(registry, outbox.ProducerConfig{}))
	log := testapp.Must[*eventlog.Log](t)(eventlog.NewLog(registry, producer, eventlog.LogConfig{}))
	r := testapp.Must[*relay.Runner](t)(relay.NewRunner(db, registry, quiet(log), bank(newBroker())))
	mustEnd(t, r.Run, func() bool { return calls.Load() > 0 }, free)
}

// TestAMapPayloadThatTimesOut: it looks something up, under a timeout of its own, which passes for one event. That is a failed attempt
// of this event, and not the broker: in the end it is parked, and other streams go on meanwhile.
func TestAMapPayloadThatTimesOut(t *testing.T) {
	t.Parallel()
	b := newBroker()
	l := newLedger(t, testdb.SQLite(t))
	l.deposit(8, 2) // amounts 1 to 16
	config := relay.LogConfig{Source: "/bank", AttemptDelay: 1, MaxAttempts: 2, ParkFailures: true, Shards: 4,
		Routes: []relay.Route{relay.To[opened]("accounts"), relay.To[deposited]("accounts",
			relay.MapPayload(func(d deposited) (deposited, error) {
				if d.Amount == 1 {
					return d, fmt.Errorf("look up the rate: %w", context.DeadlineExceeded)
				}
				return d, nil
			}))}}
	r, _ := l.runs(relay.NewLogForwarder("ledger", b, config))
	testapp.Eventually(t, "all is published or parked", l.done)
	if got := l.stats(r); len(b.all()) != 15 || got.Parked != 1 || !got.OpenedAt.IsZero() {
		t.Errorf("%d of 16 events are published, want 15, one parked and a closed circuit: %+v", len(b.all()), got)
	}
}
