//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// What several bars need: a server of their own, a load that goes on through
// faults, and the questions asked after one.

// newServer starts a server that the bar may stop and kill.
func newServer(b *bar, settings ...string) *chaos.Server {
	b.Helper()
	return newServerIn(b, serverDir(b), settings...)
}

// serverDir is not a directory of the test's: a server runs as somebody else, who may
// not look into those, and a socket's path must be short.
func serverDir(b *bar) string {
	b.Helper()
	dir := testapp.Must[string](b)(os.MkdirTemp("/tmp", fmt.Sprintf("chaos-db.%d.", os.Getpid())))
	b.atEnd(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newServerIn(b *bar, dir string, settings ...string) *chaos.Server {
	b.Helper()
	server, err := of(b, chaos.NewServer, chaos.NewMariaDB)(dir, settings...)
	return started(b, server, err)
}

// started starts a server that was prepared, and closes it at the end.
func started(b *bar, server *chaos.Server, err error) *chaos.Server {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	b.atEnd(server.Close)
	start(b, server)
	return server
}

// start starts a server and returns when the checker's first query succeeded.
func start(b *bar, server *chaos.Server) time.Time {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), time.Minute)
	defer cancel()
	testapp.OK(b, server.Start(ctx))
	return time.Now()
}

// answering waits until the data source answers the checker's first query, and
// returns when it did.
func (b *bar) answering(dsn string) time.Time {
	b.Helper()
	db, err := chaos.Source(dsn).Pool()
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

// load produces jobs, whatever becomes of the database. Each batch has a transaction,
// which also writes its number down: that tells whether it was committed.
type load struct {
	run     *run
	stop    chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
	batches []batch
}

// batch is what one transaction of a load produced; its number is its first job's.
type batch struct {
	jobs      []int
	confirmed bool // its commit was; else it may have been committed, or not

	// Positions in the server's log before the commit and after it, for a load with
	// positions; the latter is unknown when nobody lived to tell.
	before, after int64
}

const unknownPosition = math.MaxInt64

// loadSpec is what a load consists of.
type loadSpec struct {
	batch     int
	every     time.Duration
	low, high time.Duration // that a job takes
	positions bool
}

// load starts producing in the background.
func (r *run) load(spec loadSpec) *load {
	r.Helper()
	r.exec("CREATE TABLE IF NOT EXISTS produced (batch int PRIMARY KEY)")
	l := &load{run: r, stop: make(chan struct{})}
	r.Cleanup(l.end)
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
			b := batch{jobs: jobs, after: unknownPosition}
			b.confirmed = l.produce(&b, items, spec.positions) == nil
			l.batches = append(l.batches, b)
		}
	})
	return l
}

func (l *load) produce(b *batch, items []outbox.Item, positions bool) error {
	ctx, cancel := context.WithTimeout(l.run.ctx, 5*time.Second)
	defer cancel()
	err := l.run.producer.RunInTx(ctx, l.run.db, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw("INSERT INTO produced (batch) VALUES (?)", b.jobs[0]).Exec(ctx); err != nil {
			return err
		}
		_, err := l.run.producer.ProduceMany(ctx, tx, items...)
		if err == nil && positions {
			b.before, err = position(ctx, tx)
		}
		return err
	})
	if err == nil && positions {
		if after, err := position(ctx, l.run.db); err == nil {
			b.after = after
		}
	}
	return err
}

// position is where the server's log ends.
func position(ctx context.Context, db bun.IDB) (at int64, err error) {
	err = db.NewRaw("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(ctx, &at)
	return at, err
}

// end stops the load. It may be called more than once.
func (l *load) end() {
	l.once.Do(func() { close(l.stop) })
	l.wg.Wait()
}

// resolve enters the jobs of a load that has ended into the run. A batch was committed
// when its number is there: then all consumers of all its jobs must have got them, and
// else none of any. One whose commit was confirmed must be there.
func (l *load) resolve() (doubtful, committed int) {
	r := l.run
	r.Helper()
	produced := l.committed()
	for _, b := range l.batches {
		there := produced[b.jobs[0]]
		if b.confirmed && !there {
			r.Errorf("batch %d: got a commit that was confirmed and no trace of it", b.jobs[0])
		}
		if !b.confirmed {
			doubtful++
		}
		if !b.confirmed && there {
			committed++
		}
		l.enter(b, there)
	}
	return doubtful, committed
}

// committed are the numbers of the batches that were.
func (l *load) committed() map[int]bool {
	l.run.Helper()
	var numbers []int
	if err := l.run.db.NewRaw("SELECT batch FROM produced").Scan(l.run.ctx, &numbers); err != nil {
		l.run.Fatal(err)
	}
	produced := make(map[int]bool)
	for _, number := range numbers {
		produced[number] = true
	}
	return produced
}

// enter enters the jobs of a batch into the run.
func (l *load) enter(b batch, committed bool) {
	if committed {
		l.run.jobs = append(l.run.jobs, b.jobs...)
	} else {
		l.run.never = append(l.run.never, b.jobs...)
	}
}

// healed waits until every worker has started a consumer under a claim that it made
// since the instant, and returns how long that took.
func (r *run) healed(since time.Time) time.Duration {
	r.Helper()
	var last time.Time
	r.eventually(2*time.Minute, "every worker works again", func() bool {
		claimed, first := r.claimedSince(since), make(map[string]time.Time)
		for _, e := range r.ledger() {
			at, ok := claimed[e.By()]
			if _, seen := first[e.Worker]; !seen && ok && e.Kind == chaos.Started && e.At.After(at) {
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
