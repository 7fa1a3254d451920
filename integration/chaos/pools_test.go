//go:build unix

package chaos_test

import (
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 8, pools: one that is too small is refused, and in one that is just large
// enough consumers that use it keep their leases.

func barPoolRefused(b *bar) {
	r := newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}, Pool: 2})
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
	for _, part := range []string{"pool of 2", "11 connections", "2 claim loops", "8 transactional consumers", "SetMaxOpenConns"} {
		if !strings.Contains(refusal, part) {
			b.Errorf("refusal: got %q, want it to say %q", refusal, part)
		}
	}
	b.figure("a pool of 2 refused after %.1fs: %s", took.Seconds(), refusal)
}

// barPoolUsed has every plain consumer send queries all the time, so that nearly
// 60 of them wait for the 2 connections that the transactional ones and the
// renewals leave.
func barPoolUsed(b *bar) {
	const leases = 10
	r := newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}, Pool: 11})
	for n := range 64 {
		r.jobs = append(r.jobs, n)
		job := chaos.Job{N: n, Takes: leases * r.config.Lease, Do: chaos.Query}
		if _, err := r.producer.Produce(r.ctx, r.db, job); err != nil {
			b.Fatal(err)
		}
	}
	// The transactional ones have a connection, and only keep it.
	r.exec(`UPDATE consumer_messages SET payload = (payload::jsonb || '{"do":""}')::text WHERE consumer_type = 'two'`)
	w := r.start(0)
	begun := time.Now()
	var waited int
	pause(leases * r.config.Lease / 2)
	waited = r.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE 'SELECT pg_sleep%'")
	pause(time.Until(begun.Add((leases - 1) * r.config.Lease)))
	failed := len(r.ledger().Count(chaos.Failed))
	logged := strings.Count(w.Log(), "\n")
	if failed > 0 || logged > 0 {
		b.Errorf("with a pool of 11: got %d consumers cancelled and %d log lines, want none: %s", failed, logged, firstLines(w.Log(), 5))
	}
	b.figure("56 consumers on what 8 transactional ones leave of a pool of 11 (%d seen in queries), for %d leases: cancelled %d, log lines %d",
		waited, leases-1, failed, logged)
}

func firstLines(text string, n int) string {
	lines := strings.SplitN(text, "\n", n+1)
	return strings.Join(lines[:min(len(lines), n)], "\n")
}
