//go:build unix

package chaos_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// Bar 8, pools: one that is too small is refused, and in one that is just large
// enough consumers that use it keep their leases.

func barPoolRefused(b *bar) {
	r := newRun(b, b.dsn(), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}, Pool: 2})
	begun := time.Now()
	config := r.config
	config.Name = "refused"
	var refusal string
	if w, err := chaos.StartWorker(config); err != nil {
		refusal = err.Error() // it ended before it could be seen to be ready
	} else {
		r.workers = append(r.workers, w)
		select {
		case <-w.Ended():
			refusal = strings.TrimSpace(w.Log())
		case <-time.After(10 * time.Second):
			b.Fatal("a worker with a pool of 2 connections: got one that runs, want a refusal")
		}
	}
	took := time.Since(begun)
	for _, part := range []string{"SetMaxOpenConns 2", "4 connections or more", "2 for fetchers", "1 for transactional consumers"} {
		if !strings.Contains(refusal, part) {
			b.Errorf("refusal: got %q, want it to say %q", refusal, part)
		}
	}
	b.figure("a pool of 2 refused after %.1fs: %s", took.Seconds(), refusal)
}

// barPoolUsed has every plain consumer send queries all the time, so that nearly
// 50 of them wait for the 2 connections that the transactional ones and the
// renewals leave.
func barPoolUsed(b *bar) {
	seen := of(b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE 'SELECT pg_sleep%'",
		"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND INFO LIKE 'SELECT SLEEP%'")
	// Of 64 slots 8 are for transactional consumers at most, and each consumer leaves some free.
	const leases, slots, tx, most = 10, 64, 8, 52
	r := newRun(b, b.dsn(), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}, Pool: 11})
	r.plant(slices.Repeat([]chaos.Job{{Takes: leases * r.config.Lease, Do: chaos.Query}}, slots)...)
	// The transactional ones have a connection, and only keep it.
	r.exec("UPDATE consumer_messages SET payload = " + b.with("do", `""`) + " WHERE consumer_type = 'two'")
	w := r.start(0)
	started := func(consumer string) (n int) {
		for run := range r.ledger().Count(chaos.Started) {
			if run.Consumer == consumer {
				n++
			}
		}
		return n
	}
	b.eventually(10*time.Second, "most slots run consumers",
		func() bool { return started("one")+started("two") >= most && started("two") > 0 })
	pause(r.config.Lease / 3) // what still may start does
	begun, plain, transactional := time.Now(), started("one"), started("two")
	pause(leases * r.config.Lease / 2)
	used := r.count(seen)
	if used == 0 {
		b.Error("consumers seen in queries: got none, want the connections that are left to be used")
	}
	pause(time.Until(begun.Add((leases - 2) * r.config.Lease)))
	lines, _ := w.LogLines()
	if failed := len(r.ledger().Count(chaos.Failed)); failed > 0 || len(lines) > 0 {
		b.Fatalf("with a pool of 11: got %d consumers cancelled and %d log lines, want none: %v", failed, len(lines), lines[:min(len(lines), 5)])
	}
	if ended := len(r.ledger().Count(chaos.Finished)); ended > 0 || started("two") > tx {
		b.Errorf("after %d leases: got %d ends of consumers and %d transactional ones, want none and %d at most", leases-2, ended,
			started("two"), tx)
	}
	// What has no slot yet need not take as long.
	err := r.db.RunInTx(r.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewRaw("UPDATE consumer_messages SET payload = " + b.with("takes", "0") + " WHERE id NOT IN (" + b.claimed() +
			")").Exec(ctx) // stricter, it would lock the claims on MariaDB
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.eventually(2*time.Minute, "everything is settled", r.settled)
	r.stopAll()
	f := r.judgeAfter(true)
	terms := r.keptLeases()
	running, left := r.underWay(terms, begun, w)
	if lines, _ = w.LogLines(); len(lines) > 0 || f.Duplicates > 0 || running != plain+transactional {
		b.Errorf("with a pool of 11: got %d consumers at once, %d again and log lines %v, want %d and none", running, f.Duplicates, lines,
			plain+transactional)
	}
	b.figure("%d consumers on what %d transactional ones leave of a pool of 11 (%d seen in queries), for %d leases: cancelled 0, log lines 0, at least %.2fs left of every lease: %v",
		plain, transactional, used, leases, left.Seconds(), f)
}

func firstLines(text string, n int) string {
	lines := strings.SplitN(text, "\n", n+1)
	return strings.Join(lines[:min(len(lines), n)], "\n")
}
