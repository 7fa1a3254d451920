//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

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
	config, _ := outages()
	r := newRun(b, server.DSN(), config)
	for range 3 {
		r.start(3)
	}
	l := r.load(longLoad())
	pause(5 * time.Second)
	flip := func(to string) {
		r.exec("ALTER SYSTEM SET default_transaction_read_only = " + to)
		r.exec("SELECT pg_reload_conf()")
	}
	write := func() error {
		_, err := r.db.NewRaw("CREATE TABLE IF NOT EXISTS writable ()").Exec(r.ctx)
		return err
	}
	flip("on")
	begun := time.Now()
	pause(10 * time.Second) // what had begun to write before may go on doing so
	shut := time.Now()
	b.refused(write(), "25006")
	pause(20 * time.Second)
	b.refused(write(), "25006")
	if changes := r.changes(shut, time.Now()); changes > 0 {
		b.Errorf("changes while read-only: got %d, want none", changes)
	}
	flip("off")
	// The server answers all the time; it is back when it takes a write.
	b.eventually(time.Minute, "the database takes writes", func() bool { return write() == nil })
	up := time.Now()
	logged := r.quiet(begun, up)
	took := r.healed(up)
	running, left := r.underWay(r.finish(l), begun, r.former...)
	r.nobodyVanished()
	b.within("healed", took, patience)
	b.figure("read-only for %.0fs, lease %s, nothing written for %.0fs: healed in %.1fs (goal ≤ %s); of %d consumers under way the last ended %.2fs before its lease did; %s",
		up.Sub(begun).Seconds(), r.config.Lease, up.Sub(shut).Seconds(), took.Seconds(), patience, running, left.Seconds(), logged)
}

// refused fails the bar unless the server said why it refused, by its code.
func (b *bar) refused(err error, code string) {
	b.Helper()
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) || refusal.Code != code {
		b.Errorf("the database: got %v, want it to refuse with code %s", err, code)
	}
}

// roundTrip is how long a question takes once there is a connection.
func (b *bar) roundTrip(dsn string) (time.Duration, error) {
	b.Helper()
	db, err := chaos.Source(dsn).Pool()
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
	defer cancel()
	conn, err := db.Conn(ctx) // takes several
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	begun := time.Now()
	_, err = conn.ExecContext(ctx, "SELECT 1")
	return time.Since(begun), err
}

// barBlackHole cuts two workers off for a minute, without their being told, while
// a third reaches the database and takes over what they held.
func barBlackHole(b *bar) { blackHole(b, newServer(b)) }

func blackHole(b *bar, server *chaos.Server) {
	r := newRun(b, server.DSN(), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}})
	proxy, through := newProxy(b, r.dsn)
	cut := r.config
	cut.DSN = through
	cutOff := []*chaos.Worker{r.startAs(0, cut), r.startAs(1, cut)}
	r.start(2)
	l := r.load(longLoad())
	pause(8 * time.Second)
	proxy.Stall(true)
	begun := time.Now()
	if took, err := b.roundTrip(through); err == nil {
		b.Errorf("a question into the black hole: got an answer after %s, want none", took)
	}
	pause(time.Minute - time.Since(begun))
	logged := r.quiet(begun, time.Now())
	proxy.Stall(false)
	took := r.healed(b.answering(through))
	running, left := r.underWay(r.finish(l), begun, cutOff...)
	b.within("healed", took, patience)
	b.figure("a black hole of 60s for 2 of 3 workers, lease %s: healed in %.1fs (goal ≤ %s); of %d consumers cut off the last ended %.2fs before its lease did; %s",
		r.config.Lease, took.Seconds(), patience, running, left.Seconds(), logged)
}

func barLatency(b *bar) {
	const delay = 300 * time.Millisecond
	server := newServer(b)
	r := newRun(b, server.DSN(), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}})
	proxy, through := newProxy(b, r.dsn)
	r.config.DSN = through
	for range 2 {
		r.start(2)
	}
	l := r.load(longLoad())
	pause(5 * time.Second)
	proxy.Delay(delay)
	begun, before := time.Now(), len(r.ledger().Count(chaos.Finished))
	trip, err := b.roundTrip(through)
	if err != nil || trip < delay {
		b.Errorf("a question on the way: got an answer after %s and error %v, want one after %s and more", trip, err, delay)
	}
	pause(30*time.Second - time.Since(begun))
	finished := len(r.ledger().Count(chaos.Finished)) - before
	logged := r.quiet(begun, time.Now())
	proxy.Delay(0)
	took := r.healed(b.answering(through))
	running, left := r.underWay(r.finish(l), begun.Add(15*time.Second), r.former...)
	if finished < 100 {
		b.Errorf("finished with latency: got %d runs in 30s, want at least 100 of the 400 produced", finished)
	}
	b.within("healed", took, patience)
	b.figure("300ms latency for 30s (a round trip took %s), lease %s: %d runs finished meanwhile, healed in %.1fs (goal ≤ %s); of %d consumers halfway none ended less than %.2fs before its lease did; %s",
		trip.Round(time.Millisecond), r.config.Lease, finished, took.Seconds(), patience, running, left.Seconds(), logged)
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
