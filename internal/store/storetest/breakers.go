package storetest

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func breakerCases() []testCase {
	return []testCase{
		{"runs of the window open a breaker", breakerOpens},
		{"one process probes, and waits for longer each time", breakerProbes},
		{"a clock that is set back neither delays a probe nor keeps counts", breakerSetBack},
		{"a breaker that no process keeps open is not shown", breakerAbandoned},
	}
}

func breakerConfig() bus.CircuitBreakerConfig {
	return bus.CircuitBreakerConfig{MinRequests: 10, FailureRatio: 0.5, Window: 10 * time.Second, Cooldown: 4 * time.Second}
}

func (k *kit) countRuns(done, failed int64) store.Breaker {
	k.Helper()
	b, err := k.store.Flow.CountRuns(k.ctx, k.db, "c", breakerConfig(), done, failed)
	k.must("count runs", err)
	return b
}

func breakerOpens(k *kit) {
	k.countRuns(0, 9) // too few
	k.pass(11 * time.Second)
	k.countRuns(8, 7) // less than half, since those before are forgotten
	k.pass(6 * time.Second)
	if b := k.countRuns(0, 0); b.Open() || !b.Troubled() {
		k.Errorf("breaker: got %+v, want it closed, with failures", b)
	}
	k.pass(time.Second)
	b := k.countRuns(0, 1)
	equal(k, "open, at, until", []string{span(b.OpenedAt.Time), span(b.OpenUntil.Time)}, []string{k.now(), k.in(4 * time.Second)})
	open, err := k.store.Flow.OpenBreakers(k.ctx, k.db)
	k.must("read those that are open", err)
	if len(open) != 1 || open[0].Name != "c" || open[0].Done != 8 || open[0].Failed != 8 {
		k.Errorf("open breakers: got %+v, want c with 8 failed of 16", open)
	}
	again := k.countRuns(100, 0)
	equal(k, "what comes later", span(again.OpenUntil.Time), span(b.OpenUntil.Time))
	k.must("close", k.store.Flow.CloseBreaker(k.ctx, k.db, "c"))
	if open, err = k.store.Flow.OpenBreakers(k.ctx, k.db); err != nil || len(open) != 0 {
		k.Errorf("open breakers: got %+v, error %v, want none", open, err)
	}
	rows, err := k.store.Flow.Breakers(k.ctx, k.db, []string{"c", "other"})
	k.must("read", err)
	if len(rows) != 1 || rows[0].Open() || rows[0].Troubled() {
		k.Errorf("breakers: got %+v, want one, closed and without failures", rows)
	}
}

func breakerProbes(k *kit) {
	b := k.countRuns(0, 10)
	for _, wait := range []time.Duration{4, 8, 16, 32, 60, 60} {
		if won, err := k.store.Flow.TakeProbe(k.ctx, k.db, b, breakerConfig()); won || err != nil {
			k.Errorf("probe before its time: got %t, error %v, want false", won, err)
		}
		k.pass(wait * time.Second)
		for _, want := range []bool{true, false} {
			won, err := k.store.Flow.TakeProbe(k.ctx, k.db, b, breakerConfig())
			k.must("take the probe", err)
			equal(k, "won", won, want)
		}
		rows, err := k.store.Flow.Breakers(k.ctx, k.db, []string{"c"})
		k.must("read", err)
		b = rows[0]
		equal(k, "open until", span(b.OpenUntil.Time), k.in(min(2*wait*time.Second, time.Minute)))
	}
}

// breakerSetBack has the database's clock set back by an hour, while runs are counted and while the breaker is open.
func breakerSetBack(k *kit) {
	k.countRuns(0, 9)
	k.pass(-time.Hour)
	k.countRuns(0, 0)
	k.pass(11 * time.Second)
	if b := k.countRuns(0, 9); b.Open() {
		k.Errorf("nine failed runs in each of two windows: got %+v, want it closed", b)
	}
	b := k.countRuns(0, 1)
	k.pass(-time.Hour)
	for _, want := range []bool{true, false} {
		won, err := k.store.Flow.TakeProbe(k.ctx, k.db, b, breakerConfig())
		k.must("take the probe", err)
		equal(k, "won", won, want)
	}
	rows, err := k.store.Flow.Breakers(k.ctx, k.db, []string{"c"})
	k.must("read", err)
	equal(k, "open until", span(rows[0].OpenUntil.Time), k.in(8*time.Second))
}

// breakerAbandoned: the last process with the breaker is gone, or the consumer has none any more.
func breakerAbandoned(k *kit) {
	b := k.countRuns(0, 10)
	count := func(what string, want int) {
		open, err := k.store.Flow.OpenBreakers(k.ctx, k.db)
		k.must("read those that are open", err)
		equal(k, what, len(open), want)
	}
	keep := func() {
		rows, err := k.store.Flow.Breakers(k.ctx, k.db, []string{"c"})
		k.must("read", err)
		equal(k, "to be kept", rows[0].Idle(), true)
		k.must("keep", k.store.Flow.KeepBreaker(k.ctx, k.db, rows[0]))
	}
	equal(k, "idle", b.Idle(), false)
	for range 3 {
		k.pass(6 * time.Minute)
		count("kept by a process", 1)
		keep()
	}
	k.pass(11 * time.Minute)
	count("abandoned", 0)
	open, err := k.store.Flow.ProbeBreaker(k.ctx, k.db, []string{"c"})
	k.must("probe", err)
	equal(k, "open", open, false)
	keep()
	count("kept again", 1)
	k.pass(8 * 24 * time.Hour)
	k.must("forget", func() error { _, err := k.store.Reports.ForgetReports(k.ctx, k.db, 100); return err }())
	rows, err := k.store.Flow.Breakers(k.ctx, k.db, []string{"c"})
	k.must("read", err)
	equal(k, "rows", len(rows), 0)
}
