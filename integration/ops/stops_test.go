package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// reported notes a processor of consumer c, as its heartbeat does.
func reported(a *testapp.App, db *bun.DB, ago time.Duration, settings, state map[string]any) {
	consumer := map[string]any{"name": "c", "payload_types": []string{(order{}).PayloadType()}}
	for name, value := range settings {
		consumer[name] = value
	}
	all := map[string]any{"every": 15 * time.Second, "running": 1, "limit": 8}
	for name, value := range state {
		all[name] = value
	}
	text := func(v any) string { return string(testapp.Must[[]byte](a.T)(json.Marshal(v))) }
	a.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) VALUES ('p', 'processor', 'host', 7, 'shop', 'v1.1.0', "+
		testapp.In(db, -ago)+", "+testapp.In(db, -ago)+", ?, ?)", text(map[string]any{"consumers": []any{consumer}}), text(all))
}

// stopCase is something that stops consumer c.
type stopCase struct {
	reason      admin.State
	set         func(a *testapp.App, db *bun.DB)
	says        string // of what operator.Stop returns
	since, till bool
	explained   admin.State // of the message; empty: the same
}

func stopCases() []stopCase {
	lives := func(settings, state map[string]any) func(a *testapp.App, db *bun.DB) {
		return func(a *testapp.App, db *bun.DB) { reported(a, db, 0, settings, state) }
	}
	circuit := map[string]any{
		"open_circuits": []string{"c"},
		"circuits":      []bus.OpenCircuit{{Consumer: "c", Since: time.Now().Add(-19 * time.Minute), Reason: "provider answered 502"}},
	}
	return []stopCase{
		{reason: "", set: lives(nil, nil)},
		{reason: admin.Paused, since: true, says: "paused by grace: the provider is down (for 10m)", set: func(a *testapp.App, db *bun.DB) {
			lives(nil, nil)(a, db)
			a.Exec("INSERT INTO paused_consumers (consumer_type, paused_at, paused_by, note) VALUES ('c', " + testapp.In(db, -10*time.Minute) +
				", 'grace', 'the provider is down')")
		}},
		{reason: admin.CircuitBreakerOpen, since: true, till: true, says: `circuit open: 12 of 20 runs failed, "provider answered 503" (for 1h00m); next try at `,
			set: func(a *testapp.App, db *bun.DB) {
				lives(nil, circuit)(a, db)
				a.Exec("INSERT INTO message_failures (consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id) VALUES ('c', '1', 'e', 'provider answered 503', 12, " +
					testapp.In(db, -time.Hour) + ", " + testapp.In(db, 0) + ", 'v1', 1)")
				a.Exec("INSERT INTO message_breakers (name, half_since, done, failed, opened, opened_at, open_until) VALUES ('c', " +
					testapp.In(db, 0) + ", 8, 12, 1, " + testapp.In(db, -time.Hour) + ", " + testapp.In(db, time.Minute) + ")")
			}},
		{reason: admin.CircuitOpen, since: true, says: `circuit open: in 1 of 1 process, "provider answered 502" (for 19m)`,
			set: lives(nil, circuit)},
		{reason: admin.NoLiveProcess, since: true, says: "no live process: the last one, shop v1.1.0 (pid 7 on host), was lost (for 1h00m)",
			set: func(a *testapp.App, db *bun.DB) { reported(a, db, time.Hour, nil, nil) }},
		{reason: admin.KeyBlocked, since: true, says: "keys blocked: 1 key waits for its poisoned message (for 1h00m)", explained: admin.Ready,
			set: func(a *testapp.App, db *bun.DB) {
				lives(nil, nil)(a, db)
				a.Exec("INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes, poisoned_at, reason, order_key, lane, rank, parks) SELECT 9, message_id, 'c', payload_type, payload, created_at, available_after, 1, 0, "+
					testapp.In(db, -time.Hour)+", 'why', 'k', ?, 4, TRUE FROM consumer_messages", store.Lane("k"))
			}},
		{reason: admin.Limited, says: `at its limit: 1 of 1 runs of limit "mail"`, set: func(a *testapp.App, db *bun.DB) {
			lives(map[string]any{"limit": 1, "limit_name": "mail"}, nil)(a, db)
			a.Exec("INSERT INTO message_slots (name, n, owner, leased_until) VALUES (?, 1, 'p', "+testapp.In(db, time.Hour)+")", "shared\tmail")
		}},
		{reason: admin.RateLimited, till: true, says: "rate limited: 1 in 1h0m0s used up; next try at ", set: func(a *testapp.App, db *bun.DB) {
			lives(map[string]any{"rate": 1, "rate_per": time.Hour, "rate_burst": 1}, nil)(a, db)
			a.Exec("INSERT INTO message_rates (name, used_to) VALUES ('c', " + testapp.In(db, time.Hour) + ")")
		}},
		{reason: admin.Saturated, says: "all workers busy: in 1 process", set: lives(nil, map[string]any{"running": 8})},
	}
}

// TestWhatStopsAConsumer: the database alone tells why messages do not start, since when and until when, in the same
// words for the consumer and for its message.
func TestWhatStopsAConsumer(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.ProduceMany(1)
		alone := testapp.Must[*bus.Registry](t)(bus.NewRegistry())
		var id int64
		testapp.Must[any](t)(nil, db.NewRaw("SELECT id FROM consumer_messages").Scan(t.Context(), &id))
		for _, test := range stopCases() {
			for _, table := range []string{"message_processes", "paused_consumers", "message_breakers", "message_slots", "message_rates",
				"poisoned_messages", "message_failures"} {
				a.Exec("DELETE FROM " + table)
			}
			test.set(a, db)
			s := operator.As(serviceOf(t, db, alone), someone(ops.Operator))
			o := testapp.Must[operator.Overview](t)(s.Overview(t.Context()))
			if len(o.Queues) != 1 {
				t.Fatalf("%q: got %+v, want one consumer", test.reason, o.Queues)
			}
			stops := o.Queues[0].Stops
			e := testapp.Must[admin.Explanation](t)(s.Messages().Explain(t.Context(), id))
			if test.reason == "" {
				if len(stops) != 0 || e.Reason != admin.Ready {
					t.Errorf("nothing stops it: got %+v, and of the message %s", stops, e.Reason)
				}
				continue
			}
			if len(stops) != 1 || stops[0].Reason != test.reason || stops[0].Since.IsZero() == test.since || stops[0].Until.IsZero() == test.till {
				t.Errorf("%q: got %+v", string(test.reason), stops)
				continue
			}
			if says := operator.Stop(stops[0], time.Now()); !strings.HasPrefix(says, test.says) {
				t.Errorf("got %q, want %q", says, test.says)
			}
			want := test.reason
			if test.explained != "" {
				want = test.explained
			}
			same := e.Since.Sub(stops[0].Since).Abs() < time.Second && e.CircuitError == stops[0].CircuitError
			if e.Reason != want || want == test.reason && !same {
				t.Errorf("the message: got %s since %s (%s), want the reason of its consumer, %+v", e.Reason, e.Since, e.Text, stops[0])
			}
			hidden := operator.As(serviceOf(t, db, alone), someone(ops.Viewer))
			seen := fmt.Sprint(
				testapp.Must[operator.Overview](t)(hidden.Overview(t.Context())),
				testapp.Must[[]admin.Process](t)(hidden.Processes(t.Context(), time.Hour)),
				testapp.Must[[]ops.Finding](t)(hidden.Doctor(t.Context())),
			)
			if strings.Contains(seen, "provider answered") {
				t.Errorf("%s: a viewer sees the error of a circuit: %s", test.reason, seen)
			}
		}
	})
}

// TestUnhandledTypesAreStops: a consumer of which no live process takes some payload type shows that, beside what else
// stops it.
func TestUnhandledTypesAreStops(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a := testapp.New(t, db, testapp.Consumed("c"))
	a.ProduceMany(2)
	a.Exec("UPDATE consumer_messages SET payload_type = 'order.lost' WHERE id = (SELECT min(id) FROM consumer_messages)")
	reported(a, db, 0, nil, map[string]any{"running": 8})
	s := operator.As(serviceOf(t, db, testapp.Must[*bus.Registry](t)(bus.NewRegistry())), someone(ops.Viewer))
	o := testapp.Must[operator.Overview](t)(s.Overview(t.Context()))
	var reasons []string
	for _, stop := range o.Queues[0].Stops {
		reasons = append(reasons, stop.Reason.String()+": "+stop.Text)
	}
	if want := []string{"all workers busy: in 1 process", "unhandled type: order.lost"}; !slices.Equal(reasons, want) {
		t.Errorf("got %q, want %q", reasons, want)
	}
	wantFinding(t, testapp.Must[[]ops.Finding](t)(s.Check(t.Context())), "consumers", ops.Critical, "c: ",
		`No live process handles messages of payload type "order.lost".`)
}

// TestCausesNameTheErrorAndTheRelease: what needs attention says how much, since when, why, and since which release.
func TestCausesNameTheErrorAndTheRelease(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
	a.Exec("UPDATE poisoned_messages SET poisoned_at = " + testapp.In(db, -3*time.Hour))
	a.Exec("INSERT INTO message_failures (consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id) VALUES ('c', 'f', '*shop.Declined', 'provider answered 502', 41, " +
		testapp.In(db, -time.Hour) + ", " + testapp.In(db, 0) + ", 'v1.1.0', 1)")
	a.Exec("UPDATE poisoned_messages SET fingerprint = 'f'")
	a.Exec("INSERT INTO message_failures (consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id) VALUES ('c', 'g', '*net.OpError', 'connection reset', 1, " +
		testapp.In(db, time.Minute) + ", " + testapp.In(db, time.Minute) + ", 'v1.2.0', 2)") // retried, and it poisoned nothing
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry())
	for role, why := range map[ops.Role]string{ops.Operator: `"provider answered 502"`, ops.Viewer: `"shop.Declined"`} {
		s := operator.As(serviceOf(t, db, registry), someone(role))
		want := "3 poisoned messages, the oldest for 3 hours: " + why + " (41 failed runs, since v1.1.0)."
		wantFinding(t, testapp.Must[[]ops.Finding](t)(s.Check(t.Context())), "poisoned", ops.Critical, "c: ", want)
		wantFinding(t, testapp.Must[[]ops.Finding](t)(s.Doctor(t.Context())), "poisoned", ops.Critical, "c: ", want)
	}
	for fingerprint, want := range map[string]string{
		"g":     `3 hours: "connection reset" (1 failed run, since v1.2.0).`, // the last message that was poisoned
		"crash": "3 hours.", "": "3 hours.",
	} {
		a.Exec("UPDATE poisoned_messages SET fingerprint = NULLIF(?, ''), poisoned_at = "+testapp.In(db, -2*time.Hour)+
			" WHERE id = (SELECT MIN(id) FROM (SELECT id FROM poisoned_messages) x)", fingerprint)
		s := operator.As(serviceOf(t, db, registry), someone(ops.Operator))
		wantFinding(t, testapp.Must[[]ops.Finding](t)(s.Check(t.Context())), "poisoned", ops.Critical, "c: ", want)
		wantFinding(t, testapp.Must[[]ops.Finding](t)(s.Doctor(t.Context())), "poisoned", ops.Critical, "c: ", want)
	}
	a.Exec("DELETE FROM poisoned_messages")
	a.ProduceMany(1)
	reported(a, db, time.Hour, nil, nil)
	s := operator.As(serviceOf(t, db, registry), someone(ops.Viewer))
	wantFinding(t, testapp.Must[[]ops.Finding](t)(s.Check(t.Context())), "consumers", ops.Critical, "c: No live process handles 1 message of payload type \"order.placed\", due for up to ",
		": the last one, shop v1.1.0 (pid 7 on host), was lost 60 minutes ago.")
	wantFinding(t, testapp.Must[[]ops.Finding](t)(s.Check(t.Context())), "processes", ops.Warning,
		"shop v1.1.0 (pid 7 on host): ", "60 minutes ago")
}

// TestProcessesReportWhatStopsThem: a real processor tells of its circuits, with their reasons, its limits and its rates.
func TestProcessesReportWhatStopsThem(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	var circuit outbox.Circuit
	away := func() error { return circuit.Trip(errors.New("provider answered 502")) }
	_ = away()
	a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return away() }, outbox.WithCircuit(&circuit),
		bus.GlobalConcurrency(3), bus.RateLimit(100, time.Minute, 100)))
	a.ProduceMany(2)
	a.Start(testapp.Fast())
	s := operator.As(serviceOf(t, db, testapp.Must[*bus.Registry](t)(bus.NewRegistry())), someone(ops.Operator))
	var fleet []admin.Process
	testapp.Eventually(t, "it has reported", func() bool {
		fleet = testapp.Must[[]admin.Process](t)(s.Processes(t.Context(), time.Hour))
		return len(fleet) == 1
	})
	if open := fleet[0].OpenCircuits; len(open) != 1 || open[0].Consumer != "c" || open[0].Reason != "provider answered 502" ||
		time.Since(open[0].Since) > time.Minute {
		t.Errorf("got circuits %+v", open)
	}
	if c := fleet[0].Consumers[0]; c.Limit != 3 || c.Rate != 100 || c.RatePer != time.Minute {
		t.Errorf("got %+v, want its limit and its rate", c)
	}
	stops := testapp.Must[operator.Overview](t)(s.Overview(t.Context())).Queues[0].Stops
	if len(stops) == 0 || stops[0].Reason != admin.CircuitOpen || stops[0].CircuitError != "provider answered 502" {
		t.Errorf("got %+v, want the open circuit", stops)
	}
}

// TestARunnerEndsBesideAResetThatHangs, in Go or in a statement, within the 10 s that Run promises, and leaves the operation to another
// process.
// Promise: fatal-operation
func TestARunnerEndsBesideAResetThatHangs(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		free := make(chan struct{})
		defer close(free)
		hangs := map[string]func(tx bun.Tx) error{"in Go": func(bun.Tx) error { <-free; return nil }}
		if db.Dialect().Name() == dialect.PG {
			hangs["in a statement"] = func(tx bun.Tx) error {
				return testapp.Second(tx.ExecContext(context.Background(), "SELECT pg_sleep(615)"))
			}
		}
		for where, hang := range hangs {
			began := make(chan struct{})
			service, readers, err := balances(db, func(_ context.Context, tx bun.Tx) error { close(began); return hang(tx) })
			if err == nil {
				err = errors.Join(outbox.Migrate(t.Context(), db, bus.Tables{}), readers.Check(t.Context()))
			}
			if err != nil {
				t.Fatal(err)
			}
			s := operator.As(service, someone(ops.Administrator))
			o := planned(t, s, ops.Rebuild, ops.Target{Projection: "balances"})
			testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "columns were added"}))
			r := testapp.Must[*ops.Runner](t)(ops.NewRunner(service, readers))
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			<-began
			stop()
			stopped := time.Now()
			select {
			case err := <-ended:
				if took := time.Since(stopped); err != nil || took > 12*time.Second {
					t.Errorf("%s: Run ended with %v after %s, want it within 10 s", where, err, took)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("%s: Run has not ended", where)
			}
			if db.Dialect().Name() == dialect.PG {
				testapp.Eventually(t, "its statement ends", func() (ended bool) {
					testapp.OK(t, db.QueryRowContext(t.Context(), `SELECT count(*) = 0 FROM pg_stat_activity
	WHERE query = 'SELECT pg_sleep(615)' AND state = 'active'`).Scan(&ended))
					return ended
				})
			}
			o = operationOf(t, s, o.ID)
			if o.State != ops.Running || o.Note != "" {
				t.Errorf("%s: got %+v, want it left to another process", where, o)
			}
			testapp.Must[ops.Operation](t)(s.Operations().Stop(t.Context(), "over", o.ID))
		}
	})
}

// TestAResetThatHangsPausesItsOperation, with a note. On SQLite it keeps the lease from being renewed; on others it is given up after
// 10 minutes.
// Promise: fatal-operation
func TestAResetThatHangsPausesItsOperation(t *testing.T) {
	t.Parallel()
	db := testdb.OpenSQLiteWith(t, t.TempDir()+"/one.db", "_txlock=immediate&_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)")
	free := make(chan struct{})
	defer close(free)
	service, readers, err := balances(db, func(context.Context, bun.Tx) error { <-free; return nil })
	if err == nil {
		err = errors.Join(outbox.Migrate(t.Context(), db, bus.Tables{}), readers.Check(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	s := operator.As(service, someone(ops.Administrator))
	o := planned(t, s, ops.Rebuild, ops.Target{Projection: "balances"})
	testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "columns were added"}))
	r := testapp.Must[*ops.Runner](t)(ops.NewRunner(service, readers))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() { stop(); testapp.OK(t, <-ended) }()
	o = awaitState(t, s, o.ID, ops.Paused)
	if !strings.Contains(o.Note, "a function of the projection did not return in time") {
		t.Errorf("got note %q, want what has happened", o.Note)
	}
}
