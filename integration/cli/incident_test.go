package cli_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// incident is a shop with seven troubles.
type incident struct {
	site
	app       *testapp.App
	away, bad atomic.Bool // the provider is away, and a release cannot read orders
}

// TestAnIncidentByCommand has seven troubles at once. One command finds the cause of each, and at most three solve it.
func TestAnIncidentByCommand(t *testing.T) {
	t.Parallel()
	dsn := testdb.EmptyPostgresDSN(t)
	i := &incident{site: site{t, testdb.OpenPostgres(t, dsn), dsn}}
	i.begin()
	causes := map[string]string{ // by what they are about
		"charge": "Circuit open", "mail": "poisoned message", "stock": "key waits for", "report": "No live process handles 1 message",
		"ship": "paused", "(pid 40 on web-2)": "Lost", "operation ": "no live process runs operations",
	}
	i.eventually("the causes", func() []string { return i.lacks(causes) })
	i.solve("charge", func() { i.away.Store(false) }, "consumers probe charge")
	i.solve("mail", func() { i.bad.Store(false) }, "requeue --consumer mail --undo-window 0", "operations run REQUEUE")
	i.solve("stock", nil, "requeue "+i.id("SELECT id FROM poisoned_messages WHERE consumer_type = 'stock'"))
	i.solve("report", nil, "messages cancel "+i.id("SELECT id FROM consumer_messages WHERE consumer_type = 'report'"))
	i.solve("ship", nil, "consumers resume ship")
	i.solve("the operation", nil, "operations stop "+i.operation("cancel"))
	i.eventually("all is well", func() []string {
		var left []string
		for _, line := range strings.Split(i.run("status", "--check").out, "\n") {
			if strings.Contains(line, "critical") {
				left = append(left, line)
			}
		}
		return left
	})
	testapp.Eventually(t, "all is consumed", func() bool { return i.app.Empty() && len(i.app.Poisoned()) == 0 })
}

// begin has a process run the shop, and waits until the troubles are there.
func (i *incident) begin() {
	i.Helper()
	i.away.Store(true)
	i.bad.Store(true)
	unless := func(bad *atomic.Bool, err error) func(context.Context, testapp.Order) error {
		return func(context.Context, testapp.Order) error {
			if bad.Load() {
				return err
			}
			return nil
		}
	}
	breaker := bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, Cooldown: time.Hour})
	shop := []bus.Consumer{
		bus.Consume("charge", unless(&i.away, errors.New("provider answered 502")), breaker, bus.MaxAttempts(1000)),
		bus.Consume("mail", unless(&i.bad, bus.Permanent(errors.New(`field "sku" is missing`)))),
		bus.Consume("stock", unless(&i.bad, bus.Permanent(errors.New("no such shelf"))), bus.Ordered(bus.BlockKey)),
		testapp.Consumed("ship"),
	}
	i.app = testapp.New(i.T, i.db, shop...)
	testapp.New(i.T, i.db, testapp.Consumed("report")).Produce(testapp.Order{ID: "r"})
	for n := range 4 {
		i.app.Produce(testapp.Order{ID: strconv.Itoa(n), N: n}, outbox.OrderingKey("order-17"))
	}
	old := testapp.In(i.db, -5*time.Minute)
	i.app.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) VALUES " +
		"('00000000-0000-0000-0000-000000000040', 'processor', 'web-2', 40, 'shop', 'v1', " + old + ", " + old + ", '{}', '{\"every\":15000000000}')")
	i.must(0, "consumers", "pause", "ship", "--yes", "--reason", "stocktaking")
	i.must(0, "messages", "cancel", "--consumer", "ship", "--undo-window", "0", "--yes", "--reason", "a mistake")
	i.app.Exec("UPDATE message_operations SET starts_at = " + old)
	i.app.Start(testapp.Fast())
}

// lacks returns the causes that status does not say.
func (i *incident) lacks(causes map[string]string) (missing []string) {
	lines := strings.Split(i.run("status", "--check").out+i.run("status").out, "\n")
	for about, cause := range causes {
		found := false
		for k := range lines[1:] { // the name, and behind it or below it why
			found = found || strings.Contains(lines[k], about) && strings.Contains(lines[k]+lines[k+1], cause)
		}
		if !found {
			missing = append(missing, about+": "+cause)
		}
	}
	return missing
}

// solve mends a cause outside the library, and runs the commands that end the trouble.
func (i *incident) solve(what string, mend func(), commands ...string) {
	i.Helper()
	if mend != nil {
		mend()
	}
	if len(commands) > 3 {
		i.Errorf("%s: got %d commands, want at most 3", what, len(commands))
	}
	for _, command := range commands {
		command = strings.ReplaceAll(command, "REQUEUE", i.operation("requeue"))
		args := strings.Fields(command)
		if args[0] != "operations" { // those have been confirmed
			args = append(args, "--yes", "--reason", "the incident of "+what)
		}
		i.must(0, args...)
	}
}

func (i *incident) eventually(what string, left func() []string) {
	i.Helper()
	var last []string
	defer func() {
		if i.Failed() {
			i.Logf("%s: left: %q; status says: %s", what, last, i.run("status", "--check").out)
		}
	}()
	testapp.Poll(i.T, what, time.Minute, 200*time.Millisecond, func() bool { last = left(); return len(last) == 0 })
}

func (i *incident) id(query string) string { i.Helper(); return i.idOf(i.app, query) }

func (i *incident) operation(action string) string {
	i.Helper()
	return i.id("SELECT COALESCE(MAX(id), 0) FROM message_operations WHERE state = 'waiting' AND kind = '" + action + "'")
}
