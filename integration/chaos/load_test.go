//go:build unix

package chaos_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// What several bars need: a server of their own, a load that goes on through
// faults, and the questions asked after one.

// newServer starts a server that the bar may stop and kill.
func newServer(b *bar, settings ...string) *chaos.Server {
	b.Helper()
	// Not a directory of the test's: PostgreSQL runs as somebody else, who may not
	// look into those, and a socket's path must be short.
	dir, err := os.MkdirTemp("/tmp", "chaos-pg.")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return newServerIn(b, dir, settings...)
}

func newServerIn(b *bar, dir string, settings ...string) *chaos.Server {
	b.Helper()
	server, err := chaos.NewServer(dir, settings...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Close)
	start(b, server)
	return server
}

// start starts a server and returns when the checker's first query succeeded.
func start(b *bar, server *chaos.Server) time.Time {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), time.Minute)
	defer cancel()
	if err := server.Start(ctx); err != nil {
		b.Fatal(err)
	}
	return time.Now()
}

// answering waits until the data source answers the checker's first query, and
// returns when it did.
func (b *bar) answering(dsn string) time.Time {
	b.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	b.eventually(time.Minute, "the database answers", func() bool {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), time.Second)
		defer cancel()
		_, err := db.ExecContext(ctx, "SELECT 1")
		return err == nil
	})
	return time.Now()
}

// notRun says that a bar, or a part of it, cannot be put to the test here, which
// fails it unless CHAOS_ALLOW names the reason.
func (b *bar) notRun(reason string, why error) {
	b.Helper()
	b.figure("not run: %v", why)
	if !slices.Contains(strings.Split(os.Getenv("CHAOS_ALLOW"), ","), reason) {
		b.Errorf("not run: %v (CHAOS_ALLOW=%s accepts that)", why, reason)
	}
}

// load produces jobs, whatever becomes of the database.
type load struct {
	run      *run
	stop     chan struct{}
	wg       sync.WaitGroup
	jobs     []int
	doubtful []int // whose produce failed: it may have been committed
	refused  atomic.Int64
}

// loadSpec is what a load consists of.
type loadSpec struct {
	batch     int
	every     time.Duration
	low, high time.Duration // that a job takes
}

// load starts producing in the background.
func (r *run) load(spec loadSpec) *load {
	l := &load{run: r, stop: make(chan struct{})}
	random := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
	next := 1_000_000 + len(r.jobs) + len(r.never)
	l.wg.Go(func() {
		tick := time.NewTicker(spec.every)
		defer tick.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
			items, jobs := make([]outbox.Item, spec.batch), make([]int, spec.batch)
			for i := range items {
				jobs[i] = next
				items[i].Payload = chaos.Job{N: next, Takes: spec.low + time.Duration(random.Int64N(int64(spec.high-spec.low)))}
				next++
			}
			l.produce(items, jobs)
		}
	})
	return l
}

func (l *load) produce(items []outbox.Item, jobs []int) {
	ctx, cancel := context.WithTimeout(l.run.ctx, 5*time.Second)
	defer cancel()
	if _, err := l.run.producer.ProduceMany(ctx, l.run.db, items...); err != nil {
		l.refused.Add(int64(len(jobs)))
		l.doubtful = append(l.doubtful, jobs...)
		return
	}
	l.jobs = append(l.jobs, jobs...)
}

// end stops the load.
func (l *load) end() {
	close(l.stop)
	l.wg.Wait()
}

// resolve enters the jobs of a load that has ended into the run, once everything
// is settled. One whose produce failed counts as committed when any consumer got
// it, and then all must have got it; else it was never.
func (l *load) resolve() (doubtful, committed int) {
	r := l.run
	seen := make(map[int]bool)
	for _, e := range r.ledger() {
		seen[e.Job] = true
	}
	for _, run := range slices.Concat(r.runs(rowsOf("consumer_messages")), r.runs(rowsOf("poisoned_messages"))) {
		seen[run.Job] = true
	}
	r.jobs = append(r.jobs, l.jobs...)
	for _, job := range l.doubtful {
		if seen[job] {
			committed++
			r.jobs = append(r.jobs, job)
		} else {
			r.never = append(r.never, job)
		}
	}
	return len(l.doubtful), committed
}

// healed waits until every worker has started a consumer since the instant, and
// returns how long that took.
func (r *run) healed(since time.Time) time.Duration {
	r.Helper()
	var last time.Time
	r.eventually(2*time.Minute, "every worker works again", func() bool {
		first := make(map[string]time.Time)
		for _, e := range r.ledger() {
			if _, ok := first[e.Worker]; !ok && e.Kind == chaos.Started && e.At.After(since) {
				first[e.Worker] = e.At
			}
		}
		last = since
		for _, w := range r.workers {
			at, ok := first[w.Name()]
			if !ok {
				pause(50 * time.Millisecond)
				return false
			}
			last = later(last, at)
		}
		return true
	})
	return last.Sub(since)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// refresh drops the test's own connections, which a fault may have broken.
func (r *run) refresh() {
	r.db.SetMaxIdleConns(0)
	r.db.SetMaxIdleConns(20)
}

// lines are the log lines that the busiest worker wrote in a span of time, and the
// most any worker wrote in a second of it.
func (r *run) lines(from, to time.Time) (most, inSecond int) {
	for _, w := range r.workers {
		var times []time.Time
		for _, at := range w.LogTimes() {
			if !at.Before(from) && !at.After(to) {
				times = append(times, at)
			}
		}
		most = max(most, len(times))
		for i := range times {
			n := 0
			for _, at := range times[i:] {
				if at.Sub(times[i]) < time.Second {
					n++
				}
			}
			inSecond = max(inSecond, n)
		}
	}
	return most, inSecond
}

// quiet fails the bar when a worker wrote more than a line a second, besides one
// that says that leases are lost and one that it is over.
func (r *run) quiet(from, to time.Time) string {
	r.Helper()
	most, inSecond := r.lines(from, to)
	seconds := to.Sub(from).Seconds()
	if float64(most) > seconds+2 {
		r.Errorf("log lines of a worker: got %d in %.1f s, want at most one a second and two more", most, seconds)
	}
	return fmt.Sprintf("at most %d log lines of a worker in %.0fs, %d within a second", most, seconds, inSecond)
}

// cpu is the processor time that each worker has used so far.
func (r *run) cpu() (used []time.Duration, err error) {
	for _, w := range r.workers {
		cpu, err := w.CPU()
		if err != nil {
			return nil, err
		}
		used = append(used, cpu)
	}
	return used, nil
}

// busiest is the processor time that the busiest worker used since before, as a
// share of the time that passed.
func (r *run) busiest(before []time.Duration, passed time.Duration) (share float64) {
	after, err := r.cpu()
	if err != nil {
		return 0
	}
	for i := range after {
		share = max(share, float64(after[i]-before[i])/float64(passed))
	}
	return share
}

// meetings are the runs that two workers were at together, however briefly. A run
// whose worker was killed has no end and meets nobody.
func meetings(ledger chaos.Ledger) (found []chaos.Run) {
	type key struct {
		chaos.Run
		worker string
	}
	running := make(map[key]bool)
	ends := make(map[key][]time.Time)
	for _, e := range ledger {
		if e.Kind != chaos.Started {
			k := key{chaos.Run{Consumer: e.Consumer, Job: e.Job}, e.Worker}
			ends[k] = append(ends[k], e.At)
		}
	}
	workers := make(map[chaos.Run][]string)
	for _, e := range ledger {
		run := chaos.Run{Consumer: e.Consumer, Job: e.Job}
		k := key{run, e.Worker}
		if e.Kind != chaos.Started {
			delete(running, k)
			continue
		}
		for _, other := range workers[run] {
			o := key{run, other}
			if other != e.Worker && running[o] && slices.ContainsFunc(ends[o], e.At.Before) {
				found = append(found, run)
			}
		}
		running[k] = true
		if !slices.Contains(workers[run], e.Worker) {
			workers[run] = append(workers[run], e.Worker)
		}
	}
	return found
}

// leased is until when a message was leased to somebody.
type leased struct {
	chaos.Run
	Owner string
	Until time.Time
}

func (r *run) leases() (rows []leased) {
	r.Helper()
	err := r.db.NewRaw("SELECT c.owner, c.leased_until AS until, m.consumer_type AS consumer, (m.payload::json->>'n')::int AS job"+
		" FROM message_claims c JOIN consumer_messages m ON m.id = ANY(c.message_ids)").Scan(r.ctx, &rows)
	if err != nil {
		r.Fatal(err)
	}
	return rows
}

// outlived are the consumers that the workers were running at the instant, when the
// leases were read, and that went on after their lease; margin is how long before
// the lease's end the latest of the others ended.
func outlived(ledger chaos.Ledger, leases []leased, at time.Time, workers []string) (found []chaos.Run, ran int, margin time.Duration) {
	current := make(map[chaos.Run]chaos.Event)
	margin = time.Hour
	for _, e := range ledger {
		run := chaos.Run{Consumer: e.Consumer, Job: e.Job}
		began, running := current[run]
		if e.At.Before(at) {
			current[run] = e
		} else if running && began.Kind == chaos.Started && slices.Contains(workers, began.Worker) && e.Worker == began.Worker {
			delete(current, run)
			i := slices.IndexFunc(leases, func(l leased) bool { return l.Run == run })
			if i < 0 {
				continue // settled before the leases were read
			}
			if left := leases[i].Until.Sub(e.At); left < 0 {
				found = append(found, run)
			} else {
				margin = min(margin, left)
			}
			ran++
		}
	}
	return found, ran, margin
}
