//go:build unix

package chaos_test

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 1: workers are killed under load. Nothing is lost, nothing runs twice that
// was not in flight, and no innocent is poisoned.

func barKills(b *bar) {
	kills(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Plain: []string{"one", "two"}}, pick(b, 1500, 20_000, 20_000), pick(b, 4, 30, 30))
}

func barKillsTx(b *bar) {
	kills(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Tx: []string{"one", "two"}}, pick(b, 1500, 20_000, 20_000), pick(b, 4, 30, 30))
}

func kills(b *bar, dsn string, config chaos.WorkerConfig, messages, times int) *run {
	const crew = 3
	r := newRun(b, dsn, config)
	takes := func() time.Duration { return b.between(5*time.Millisecond, 40*time.Millisecond) }
	if len(config.Tx) > 0 { // 8 at a time
		takes = func() time.Duration { return b.between(time.Millisecond, 5*time.Millisecond) }
	}
	for range crew {
		r.start(crew)
	}
	inFlight := 0
	for range times {
		r.produce(messages/times, takes)
		pause(b.between(50*time.Millisecond, 500*time.Millisecond))
		b.eventually(time.Minute, "the crew keeps up", func() bool { return r.pending() < messages/times })
		victim := b.IntN(crew)
		r.workers[victim].Kill()
		inFlight += r.strike(r.workers[victim])
		r.start(victim)
	}
	backlog := r.pending()
	limit := r.config.Lease + 5*time.Second
	took := b.eventually(time.Minute, "everything is settled", r.settled)
	r.stopAll()
	f := r.judge()
	if f.Duplicates > inFlight {
		b.Errorf("duplicates: got %d, want at most the %d in flight at the kills", f.Duplicates, inFlight)
	}
	if took > limit {
		b.Errorf("settled %s after the last kill, want at most %s", took, limit)
	}
	b.figure("%d kills, %d messages: %v; in flight at kills %d, %d waiting at the last kill settled in %.1fs (goal ≤ %s)",
		times, messages*len(r.config.Plain)+messages*len(r.config.Tx), f, inFlight, backlog, took.Seconds(), limit)
	return r
}
