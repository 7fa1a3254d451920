package eventlog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestALongWayToNumberIsNoOutage has numbering take longer than a statement may,
// as after an import: projections go on with what has its position, and nobody
// speaks of an outage.
func TestALongWayToNumberIsNoOutage(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	others := newLedger(t, testdb.OpenPostgres(t, dsn))
	slow := testdb.Replacing(t, "WITH todo AS MATERIALIZED (SELECT sequence FROM",
		"WITH slow AS MATERIALIZED (SELECT pg_sleep(1.5)), todo AS MATERIALIZED (SELECT sequence FROM slow,")
	l := &ledger{newApp(t, testdb.OpenRewritten(t, dsn, slow))}
	events := make([]bus.Payload, 9_000) // five pages
	for i := range events {
		events[i] = opened{}
	}
	others.append("account-1", eventlog.AnyVersion, moved{1})
	first := others.append("account-1", eventlog.AnyVersion, events...)
	log := &testapp.Lines{}
	p := balances()
	p.BatchSize = 5000
	r, err := projection.NewRunner(l.db, l.log, projection.RunnerConfig{PollInterval: 20 * time.Millisecond, Logger: log.Logger()}, p)
	if err != nil {
		t.Fatal(err)
	}
	running(t, "runner", r.Run)
	unnumbered := func() int { return others.count("SELECT count(*) FROM events WHERE position IS NULL") }
	eventually(t, "the first event is applied", func() bool { return others.table("")["account-1"] == 1 })
	if unnumbered() == 0 {
		t.Error("the first event was applied once all had positions, want it before")
	}
	eventually(t, "all have positions", func() bool { return unnumbered() == 0 })
	if err := r.Health().Err; err != nil {
		t.Errorf("health: got %v, want no error", err)
	}
	if strings.Contains(log.String(), "statement failed") {
		t.Errorf("log: got %q, want nothing of an outage", log)
	}
	if err := r.WaitFor(l.ctx, "balances", first); err != nil {
		t.Error(err)
	}
}
