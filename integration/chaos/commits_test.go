//go:build unix

package chaos_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Bar 3: a fifth of all commits, and of the statements that settle, is lost on its
// way to the server or on its way back.

func barCommits(b *bar) {
	dsn := testdb.PostgresDSN(b)
	proxy, through := newProxy(b, dsn)
	r := newRun(b, dsn, chaos.WorkerConfig{Tx: []string{"one"}, Plain: []string{"two"}})
	r.config.DSN = through
	faults := newFaults(b)
	messages := pick(b, 200, 2000, 2000)

	proxy.Decide(faults.decide)
	retried := r.produceThrough(through, messages)
	for range 2 {
		r.start(2)
	}
	took := b.eventually(4*time.Minute, "everything is settled", r.settled)
	proxy.Decide(func(string) chaos.Fault { return chaos.Forward })
	r.stopAll()
	f := r.judge()
	lost := faults.counts()
	for _, kind := range []string{"commit dropped", "commit's answer dropped", "settle dropped", "settle's answer dropped"} {
		if lost[kind] == 0 {
			b.Errorf("faults: got no %s, want some: %v", kind, lost)
		}
	}
	b.figure("%d messages in %.1fs, %d produces retried, faults %v: %v", 2*messages, took.Seconds(), retried, lost, f)
}

// produceThrough produces jobs one by one through the proxy, each until it gets
// through, with an insert id, so that a commit whose answer was lost does not
// produce twice.
func (r *run) produceThrough(dsn string, n int) (retried int) {
	r.Helper()
	db := testdb.OpenPostgres(r, dsn)
	for i := range n {
		r.jobs = append(r.jobs, i)
		key := outbox.InsertID(fmt.Sprint("job-", i))
		for {
			_, err := r.producer.Produce(r.ctx, db, chaos.Job{N: i}, key)
			if err == nil {
				break
			}
			if retried++; retried > 10*n {
				r.Fatalf("produce: got %v, want it to get through now and then", err)
			}
		}
	}
	return retried
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
	through, err := chaos.Rerouted(dsn, port)
	if err != nil {
		t.Fatal(err)
	}
	return through
}

// faults are the losses of bar 3, and how many there were of each.
type faults struct {
	mu     sync.Mutex
	random *rand.Rand
	count  map[string]int
}

func newFaults(b *bar) *faults {
	return &faults{random: rand.New(rand.NewPCG(b.Uint64(), b.Uint64())), count: make(map[string]int)}
}

// decide loses a fifth of what matters.
func (f *faults) decide(sql string) chaos.Fault {
	what, share := "", 0.2
	switch {
	case strings.EqualFold(strings.TrimRight(sql, ";"), "commit"):
		what = "commit"
	case strings.Contains(sql, `DELETE FROM "message_claims"`):
		what, share = "settle", 0.5 // there are few of them, each for many messages
	case strings.Contains(sql, `INSERT INTO "consumer_messages"`):
		what = "produce"
	default:
		return chaos.Forward
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch p := f.random.Float64(); {
	case p < share/2:
		f.count[what+" dropped"]++
		return chaos.DropQuery
	case p < share:
		f.count[what+"'s answer dropped"]++
		return chaos.DropReply
	}
	return chaos.Forward
}

func (f *faults) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.count)
}
