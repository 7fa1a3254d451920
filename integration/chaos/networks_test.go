//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"

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

// shutting makes a database read-only, for all but the run's statements here.
type shutting struct {
	dsn     string
	flip    func(on bool)
	refusal string // the code of the server's refusal
}

func shuttingPostgres(b *bar) shutting {
	dsn := newServer(b).DSN()
	db := openDSN(b, dsn)
	return shutting{dsn: dsn, refusal: "25006", flip: func(on bool) {
		b.exec(db, fmt.Sprintf("ALTER SYSTEM SET default_transaction_read_only = %t", on))
		b.exec(db, "SELECT pg_reload_conf()")
	}}
}

// shuttingMariaDB has the workers be a user who may not write to a server that is read-only,
// as an application's should be.
func shuttingMariaDB(b *bar) shutting {
	server := newServer(b).DSN()
	root := openDSN(b, server)
	b.exec(root, "CREATE USER app@localhost")
	b.exec(root, "GRANT ALL ON test.* TO app@localhost")
	return shutting{dsn: strings.Replace(server, "root@", "app@", 1), refusal: "1290", flip: func(on bool) {
		b.exec(root, fmt.Sprintf("SET GLOBAL read_only = %t", on))
	}}
}

func barReadOnly(b *bar) {
	s := of(b, shuttingPostgres, shuttingMariaDB)(b)
	config, _ := outages()
	r := newRun(b, s.dsn, config)
	r.crew(3)
	l := r.load(longLoad())
	pause(5 * time.Second)
	write := func() error {
		_, err := r.db.NewRaw("CREATE TABLE IF NOT EXISTS writable (n INT)").Exec(r.ctx)
		return err
	}
	s.flip(true)
	begun := time.Now()
	pause(10 * time.Second) // what had begun to write before may go on doing so
	shut := time.Now()
	b.refused(write(), s.refusal)
	pause(20 * time.Second)
	b.refused(write(), s.refusal)
	if changes := r.changes(shut, time.Now()); changes > 0 {
		b.Errorf("changes while read-only: got %d, want none", changes)
	}
	s.flip(false)
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
	var postgres *pgconn.PgError
	var mariadb *mysql.MySQLError
	got := "none"
	switch {
	case errors.As(err, &postgres):
		got = postgres.Code
	case errors.As(err, &mariadb):
		got = strconv.Itoa(int(mariadb.Number))
	}
	if got != code {
		b.Errorf("the database: got %v with code %s, want it to refuse with code %s", err, got, code)
	}
}

// exec executes a statement of the checker's own.
func (b *bar) exec(db *bun.DB, query string) {
	b.Helper()
	if _, err := db.NewRaw(query).Exec(context.WithoutCancel(b.Context())); err != nil {
		b.Fatalf("%.60s: %v", query, err)
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
func barBlackHole(b *bar) {
	r := newRun(b, newServer(b).DSN(), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}})
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
	r := newRun(b, newServer(b).DSN(), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}})
	proxy, through := newProxy(b, r.dsn)
	r.config.DSN = through
	r.crew(2)
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
// rows it picked and not yet recorded its claim. The server hears nothing of it. MariaDB has to end
// idle transactions, as docs/databases.md says: by itself it would wait for the client's network for hours.
func barVanished(b *bar) {
	records := of(b, "WITH free AS MATERIALIZED", "INSERT INTO `message_claims`")
	r := newRun(b, newServer(b).DSN()+of(b, "", "?idle_transaction_timeout=5"), chaos.WorkerConfig{Plain: []string{"one"}})
	proxy, through := newProxy(b, r.dsn)
	vanished := make(chan struct{}, 1)
	var gone atomic.Bool
	proxy.Decide(func(sql string) chaos.Fault {
		if !strings.Contains(sql, records) || !gone.CompareAndSwap(false, true) {
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
	locked := 40 - len(r.runs("SELECT consumer_type AS consumer, 0 AS job FROM consumer_messages FOR UPDATE SKIP LOCKED"))
	r.start(0)
	took := r.eventually(time.Minute, "the rows are free and settled", r.settled)
	b.within("freed", time.Since(begun), patience)
	if locked == 0 {
		b.Error("rows locked by the vanished client: got none, want some")
	}
	r.stopAll()
	f := r.judge()
	b.figure("a client vanished between pick and record with %d rows locked: freed and settled in %.1fs (goal ≤ %s): %v", locked,
		took.Seconds(), patience, f)
}
