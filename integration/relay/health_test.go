package relay_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// watching is a subscription that notices whether its broker is there.
type watching struct {
	*subscription
	say func(error)
}

// OnOutage implements broker.OutageNotifier.
func (w *watching) OnOutage(f func(error)) { w.say = f }

// TestABrokerThatIsAwayIsShown: the log has a line when that begins and one when it ends, however often it
// is found out, and Stats and Health say so meanwhile.
func TestABrokerThatIsAwayIsShown(t *testing.T) {
	t.Parallel()
	b := newBroker()
	sub := &watching{subscription: b.subscribe()}
	var log testapp.Lines
	s := receivesWith(t, testdb.SQLite(t), inbox.RunnerConfig{Logger: log.Logger()},
		inbox.NewReceiver("from-shop", sub, inbox.Accept[order]()), testapp.Consumed("ship"))
	if h := s.runner.Health(); h.Ready || h.Err != nil {
		t.Errorf("before it runs: got %+v, want it not ready", h)
	}
	s.run()
	testapp.Eventually(t, "it is ready", func() bool { return s.runner.Health().Ready && sub.active.Load() })
	for range 2 {
		sub.say(nil)
		for range 3 {
			sub.say(errors.New("the wire is cut"))
		}
		if paused := s.stats().Paused; !strings.Contains(paused, "broker does not answer") || !strings.Contains(paused, "wire is cut") {
			t.Errorf("paused: got %q, want the reason", paused)
		}
		h := s.runner.Health()
		if len(h.OpenCircuits) != 1 || h.OpenCircuits[0].Consumer != "receive:from-shop" ||
			h.OpenCircuits[0].Reason != "the wire is cut" || time.Since(h.OpenCircuits[0].Since) > time.Minute || !h.Ready || h.Err != nil {
			t.Errorf("health: got %+v, want it ready, and the broker away", h)
		}
		sub.say(nil)
		sub.say(nil)
		if h := s.runner.Health(); len(h.OpenCircuits) != 0 || s.stats().Paused != "" {
			t.Errorf("afterwards: got %+v, paused %q, want neither", h.OpenCircuits, s.stats().Paused)
		}
	}
	for line, n := range map[string]int{`level=WARN msg="receiver waits for the broker" receiver=from-shop error="the wire is cut"`: 2,
		`level=INFO msg="broker answers the receiver again" receiver=from-shop after=`: 2, "msg=": 4} {
		if got := strings.Count(log.String(), line); got != n {
			t.Errorf("log: got %d of %q, want %d:\n%s", got, line, n, &log)
		}
	}
	sub.say(errors.New("it stays away"))
	s.stop()
	if h := s.runner.Health(); h.Ready || len(h.OpenCircuits) != 0 || s.stats().Paused != "" {
		t.Errorf("once it has ended: got %+v, paused %q, want it not ready, and no more", h, s.stats().Paused)
	}
}

// TestHealthOfARunner: it knows of the database although no record arrives.
func TestHealthOfARunner(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		receiver := inbox.NewReceiver("from-shop", newBroker().subscribe(), inbox.Accept[order]())
		a := newApp(testapp.Consumed("ship"), receiver.Consumer())
		var away atomic.Bool
		db := a.DB.WithQueryHook(breaks{&away})
		runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, a.Registry, a.Producer, inbox.RunnerConfig{}, receiver))
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- runner.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("run: got %v, want nil", err)
			}
		}()
		testapp.Sooner(t, "it is ready", func() bool { return runner.Health().Ready })
		away.Store(true)
		<-time.After(2 * time.Minute)
		if h := runner.Health(); h.Ready || h.Err == nil {
			t.Errorf("health: got %+v, want it not ready, and the reason", h)
		}
		away.Store(false)
		<-time.After(5 * time.Second)
		if h := runner.Health(); !h.Ready || h.Err != nil {
			t.Errorf("health: got %+v, want it ready soon", h)
		}
	})
}

// breaks fails every statement while it is set.
type breaks struct{ away *atomic.Bool }

// BeforeQuery implements bun.QueryHook.
func (b breaks) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context {
	if b.away.Load() {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		cancel(errors.New("away"))
	}
	return ctx
}

// AfterQuery implements bun.QueryHook.
func (breaks) AfterQuery(context.Context, *bun.QueryEvent) {}

// TestACircuitOfALogForwarderIsShown in the health of its runner, and to operators.
func TestACircuitOfALogForwarderIsShown(t *testing.T) {
	t.Parallel()
	var circuit outbox.Circuit
	l := newLedger(t, testdb.SQLite(t))
	_ = circuit.Trip(errors.New("away")) // before the first report
	r, _ := l.runs(bankWith(newBroker(), relay.LogConfig{Circuit: &circuit}))
	testapp.Eventually(t, "it is ready", func() bool { return r.Health().Ready })
	if h := r.Health(); !h.Ready || len(h.OpenCircuits) != 1 || h.OpenCircuits[0].Consumer != "relay:ledger" ||
		h.OpenCircuits[0].Reason != "away" {
		t.Errorf("got %+v, want it ready, and the circuit", h)
	}
	client := testapp.Must[*admin.Client](t)(admin.NewClient(l.Registry))
	var fleet []admin.Process
	testapp.Eventually(t, "it has reported", func() bool {
		fleet = testapp.Must[[]admin.Process](t)(client.Processes(t.Context(), l.DB, time.Hour))
		return len(fleet) == 1
	})
	if closed := fleet[0].OpenCircuits; len(closed) != 1 || closed[0].Consumer != "relay:ledger" || closed[0].Reason != "away" ||
		time.Since(closed[0].Since) > time.Minute {
		t.Errorf("to operators: got %q closed, want the relay", closed)
	}
}
