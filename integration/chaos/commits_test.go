//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Bar 3: a fifth of all commits, and of the statements that settle, is lost on its
// way to the server or on its way back.

func barCommits(b *bar) {
	dsn, messages, producing := b.dsn(), of(b, pick(b, 200, 2000, 2000), pick(b, 200, 600, 600)), []string{"commit", "produce"}
	// On MariaDB whatever settles is a transaction of several statements.
	consuming := of(b, []string{"commit", "settle", "finish"}, []string{"commit"})
	proxy, through := newProxy(b, dsn)
	r := newRun(b, dsn, chaos.WorkerConfig{Tx: []string{"one", "grouped"}, Grouped: []string{"grouped"}, Plain: []string{"two"}})
	r.config.DSN = through

	produced := newFaults(b)
	proxy.Decide(produced.decide)
	retried := r.produceThrough(through, messages)
	if pending := r.pending(); pending != 3*messages {
		b.Errorf("pending: got %d messages, want one for each of 3 consumers of %d jobs", pending, messages)
	}
	direct := openDSN(b, dsn)
	r.produceUnkeyed(direct, messages/4)
	consumed := newFaults(b)
	proxy.Decide(consumed.decide)
	r.crew(2)
	plain := r.config // whose claims are finished as a whole: one with transactions never is
	plain.Tx, plain.Grouped = nil, nil
	r.startAs(4, plain)
	took := b.eventually(4*time.Minute, "everything is settled", r.settled)
	// All of a claim may still have failed once, or been another worker's.
	for more := 0; consumed.lacks(consuming...) != "" && more < 50; more++ {
		r.produceUnkeyed(direct, 1)
		took += b.eventually(time.Minute, "one more is settled", r.settled)
	}
	proxy.Decide(func(string) chaos.Fault { return chaos.Forward })
	r.stopAll()
	f := r.judge()
	r.failedOnce(messages / 4)
	r.shared()
	b.figure("%d messages in %.1fs, %d produces retried, lost while producing %v, while consuming %v; attempts of %d runs that fail once: 2 each; %v",
		3*len(r.jobs), took.Seconds(), retried, produced.demand(producing...), consumed.demand(consuming...), 3*(messages/4), f)
}

// failedOnce checks that the first n jobs, which fail once, took two attempts of each
// consumer: a failure that was settled twice would have taken the third.
func (r *run) failedOnce(n int) {
	r.Helper()
	last := make(map[chaos.Run]int)
	for _, e := range r.ledger() {
		last[chaos.Run{Consumer: e.Consumer, Job: e.Job}] = max(e.Attempt, last[chaos.Run{Consumer: e.Consumer, Job: e.Job}])
	}
	for run, attempts := range last {
		want := 1
		if run.Job < n {
			want = 2
		}
		if attempts != want {
			r.Errorf("%v: got %d attempts, want %d", run, attempts, want)
		}
	}
}

// produceUnkeyed produces n more jobs without an insert id, in one transaction: only a claim
// without insert ids is finished as a whole.
func (r *run) produceUnkeyed(db *bun.DB, n int) {
	r.Helper()
	items := make([]outbox.Item, n)
	for i := range items {
		job := chaos.Job{N: len(r.jobs)}
		r.jobs, items[i].Payload = append(r.jobs, job.N), job
	}
	testapp.OK(r, testapp.Second(r.producer.ProduceMany(r.ctx, db, items...)))
}

// produceThrough produces jobs one by one through the proxy, each until it gets
// through, with an insert id, so that a commit whose answer was lost does not
// produce twice. The first quarter fails once.
func (r *run) produceThrough(dsn string, n int) (retried int) {
	r.Helper()
	db := openDSN(r, dsn)
	for i := range n {
		r.jobs = append(r.jobs, i)
		job := chaos.Job{N: i}
		if i < n/4 {
			job.Do = chaos.Once
		}
		for {
			if err := r.produceOnce(db, job, i%2 == 0); err == nil {
				break
			}
			if retried++; retried > 10*n {
				r.Fatal("produce: got nothing but errors, want it to get through now and then")
			}
		}
	}
	return retried
}

// produceOnce produces with an insert id, with a commit of its own or in a transaction.
func (r *run) produceOnce(db *bun.DB, job chaos.Job, inTx bool) error {
	key := outbox.InsertID(fmt.Sprint("job-", job.N))
	if !inTx {
		_, err := r.producer.Produce(r.ctx, db, job, key)
		return err
	}
	return r.producer.RunInTx(r.ctx, db, func(ctx context.Context, tx bun.Tx) error {
		_, err := r.producer.Produce(ctx, tx, job, key)
		return err
	})
}

// newProxy starts a proxy to the server of the DSN, and returns it with the DSN
// of the way through it.
func newProxy(b *bar, dsn string) (*chaos.Proxy, string) {
	b.Helper()
	proxy, through, err := chaos.NewProxyTo(dsn)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(proxy.Close)
	return proxy, through
}

// rerouted is the DSN of the same database by way of a local port.
func rerouted(t testing.TB, dsn string, port int) string {
	t.Helper()
	through := testapp.Must[chaos.Source](t)(chaos.Source(dsn).Rerouted(port))
	return string(through)
}

// faults are the losses of bar 3, and how many there were of each.
type faults struct {
	*bar
	mu     sync.Mutex
	random *rand.Rand
	seen   map[string]int
	count  map[string]int
}

func newFaults(b *bar) *faults {
	return &faults{bar: b, random: rand.New(rand.NewPCG(b.Uint64(), b.Uint64())), seen: make(map[string]int), count: make(map[string]int)}
}

// The statements that settle are told by what no other statement has.
const (
	settles  = "rest AS MATERIALIZED"  // results, one by one
	finishes = "AS messages FROM gone" // claims of which all is done
)

// decide loses a fifth of what matters, and of each kind the first two.
func (f *faults) decide(sql string) chaos.Fault {
	what, share := "", 0.2
	switch {
	case strings.EqualFold(strings.TrimRight(sql, ";"), "commit"):
		what = "commit"
	case strings.Contains(sql, settles): // there are few of these, each for many messages
		what, share = "settle", 0.5
	case strings.Contains(sql, finishes):
		what, share = "finish", 0.5
	case strings.Contains(sql, `INSERT INTO "consumer_messages"`), strings.Contains(sql, "INSERT INTO `consumer_messages`"):
		what = "produce"
	default:
		return chaos.Forward
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[what]++
	p := f.random.Float64()
	switch n := f.seen[what]; {
	case n == 1, n > 2 && p < share/2:
		f.count[what+" dropped"]++
		return chaos.DropQuery
	case n == 2, n > 2 && p < share:
		f.count[what+"'s answer dropped"]++
		return chaos.DropReply
	}
	return chaos.Forward
}

// demand fails the bar unless statements of each kind were lost both ways, and
// returns how many were.
func (f *faults) demand(kinds ...string) map[string]int {
	f.Helper()
	missing := f.lacks(kinds...)
	f.mu.Lock()
	defer f.mu.Unlock()
	if missing != "" {
		f.Errorf("faults: got no %s, want some: %v", missing, f.count)
	}
	return maps.Clone(f.count)
}

// lacks names a fault of these kinds that there was not, or nothing.
func (f *faults) lacks(kinds ...string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, kind := range kinds {
		for _, way := range []string{" dropped", "'s answer dropped"} {
			if f.count[kind+way] == 0 {
				return kind + way
			}
		}
	}
	return ""
}
