//go:build unix

package chaos_test

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// Bar 8, databases that are there and do not serve: read-only, unreachable, slow,
// and left by a client that did not say goodbye. Ten seconds after the end of it
// every worker works again, and no consumer has outlived its lease.

const patience = 10 * time.Second

// longLoad has jobs that take longer than a lease, so that it has to be renewed,
// beside short ones.
func longLoad() loadSpec {
	return loadSpec{batch: 1, every: 150 * time.Millisecond, low: 10 * time.Millisecond, high: 4 * time.Second}
}

func barReadOnly(b *bar) {
	server := newServer(b)
	config, spec := outages()
	r := newRun(b, server.DSN(), config)
	for range 3 {
		r.start(3)
	}
	l := r.load(spec)
	pause(3 * time.Second)
	flip := func(to string) {
		r.exec("ALTER SYSTEM SET default_transaction_read_only = " + to)
		r.exec("SELECT pg_reload_conf()")
	}
	flip("on")
	begun := time.Now()
	pause(30 * time.Second)
	flip("off")
	// The server answers all the time; it is back when it takes a write.
	b.eventually(time.Minute, "the database takes writes", func() bool {
		_, err := r.db.NewRaw("CREATE TABLE IF NOT EXISTS writable ()").Exec(r.ctx)
		return err == nil
	})
	up := time.Now()
	logged := r.quiet(begun, up)
	took := r.healed(up)
	r.finish(l)
	b.within("healed", took, patience)
	b.figure("read-only for %.0fs: healed in %.1fs (goal ≤ %s); %s", up.Sub(begun).Seconds(), took.Seconds(), patience, logged)
}

// barBlackHole cuts two workers off for a minute, without their being told, while
// a third reaches the database and takes over what they held.
func barBlackHole(b *bar) {
	server := newServer(b)
	r := newRun(b, server.DSN(), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}})
	proxy, through := newProxy(b, r.dsn)
	cut := r.config
	cut.DSN = through
	cutOff := []string{r.startAs(0, cut).Name(), r.startAs(1, cut).Name()}
	r.start(2)
	l := r.load(longLoad())
	pause(8 * time.Second)
	proxy.Stall(true)
	begun := time.Now()
	pause(500 * time.Millisecond) // what was on its way has arrived
	leases := r.leases()
	pause(time.Minute - time.Since(begun))
	logged := r.quiet(begun, time.Now())
	proxy.Stall(false)
	took := r.healed(b.answering(through))
	f, _, _ := r.finish(l)
	found, running, margin := outlived(r.ledger(), leases, begun, cutOff)
	if len(found) > 0 {
		b.Errorf("consumers that outlived their lease: got %d, such as %v, want none", len(found), found[0])
	}
	if running == 0 {
		b.Error("consumers running when the hole began: got none, want some")
	}
	b.within("healed", took, patience)
	b.figure("a black hole of 60s for 2 of 3 workers, lease %s: healed in %.1fs (goal ≤ %s); of %d consumers cut off the last ended %.2fs before its lease did, overlaps %d; %s",
		r.config.Lease, took.Seconds(), patience, running, margin.Seconds(), len(f.Overlaps), logged)
}

func barLatency(b *bar) {
	server := newServer(b)
	r := newRun(b, server.DSN(), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}})
	proxy, through := newProxy(b, r.dsn)
	r.config.DSN = through
	for range 2 {
		r.start(2)
	}
	l := r.load(longLoad())
	pause(5 * time.Second)
	proxy.Delay(300 * time.Millisecond)
	begun, before := time.Now(), len(r.ledger().Count(chaos.Finished))
	pause(30 * time.Second)
	finished := len(r.ledger().Count(chaos.Finished)) - before
	logged := r.quiet(begun, time.Now())
	proxy.Delay(0)
	took := r.healed(b.answering(through))
	f, _, _ := r.finish(l)
	if finished < 100 {
		b.Errorf("finished with latency: got %d runs in 30s, want at least 100 of the 400 produced", finished)
	}
	b.within("healed", took, patience)
	b.figure("300ms latency for 30s, lease %s: %d runs finished meanwhile, healed in %.1fs (goal ≤ %s), overlaps %d; %s",
		r.config.Lease, finished, took.Seconds(), patience, len(f.Overlaps), logged)
}

// barVanished has a worker vanish, and its network with it, when it has locked the
// rows it picked and not yet recorded its claim. The server hears nothing of it.
func barVanished(b *bar) {
	server := newServer(b)
	r := newRun(b, server.DSN(), chaos.WorkerConfig{Plain: []string{"one"}})
	proxy, through := newProxy(b, r.dsn)
	vanished := make(chan struct{}, 1)
	var gone atomic.Bool
	proxy.Decide(func(sql string) chaos.Fault {
		if !strings.Contains(sql, "WITH free AS MATERIALIZED") || !gone.CompareAndSwap(false, true) {
			return chaos.Forward
		}
		vanished <- struct{}{}
		return chaos.Vanish
	})
	r.produce(40, func() time.Duration { return 0 })
	config := r.config
	config.DSN = through
	r.startAs(0, config)
	select {
	case <-vanished:
	case <-time.After(10 * time.Second):
		b.Fatal("statement that records a claim: got none in 10s, want one")
	}
	r.kill(0)
	begun := time.Now()
	locked := 40 - r.count("SELECT count(*) FROM (SELECT 1 FROM consumer_messages FOR UPDATE SKIP LOCKED) free")
	r.start(0)
	took := r.eventually(time.Minute, "the rows are free and settled", r.settled)
	b.within("freed", time.Since(begun), patience)
	if locked == 0 {
		b.Error("rows locked by the vanished client: got none, want some")
	}
	r.stopAll()
	f := r.judge()
	b.figure("a client vanished between pick and record with %d rows locked: freed and settled in %.1fs (goal ≤ %s): %v", locked, took.Seconds(), patience, f)
}
