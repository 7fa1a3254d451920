//go:build unix

package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Bar 4: a worker is stopped for two leases, wherever that hurts. What it was at
// belongs to somebody else by then, and nothing that it still does may count.

// exitPath is one way in which a worker that was stopped goes on.
type exitPath struct {
	name string
	job  chaos.Job
	tx   bool
	// onTheWire is a part of the statement that is on its way to the database
	// while the worker stops; it arrives when the messages belong to somebody
	// else. Without one the worker stops in the middle of its consumers.
	onTheWire []string
	// sends is what a worker that stopped in the middle of its consumers sends when
	// it goes on, a part of one of these statements.
	sends  []string
	doomed bool
}

const pausedLease = 2 * time.Second

// keeping tells the statements that keep a claim or end it, by what no other has. Of
// several statements it is the one that locks the claim if it is still there.
type keeping struct{ settles, finishes, extends, renewal, fences string } // a renewal begins with renewal

func (b *bar) keeping() keeping {
	const renewal, locks = "SET leased_until", "SELECT c.id, c.solo, c.message_ids"
	return of(b,
		keeping{settles: settles, finishes: finishes, extends: renewal, renewal: renewal, fences: "FOR UPDATE OF m"},
		keeping{settles: locks, finishes: locks, extends: "SET c.leased_until", renewal: "SELECT id FROM `message_claims` WHERE owner",
			fences: "SELECT m.id, m.attempts, m.crashes"})
}

func exitPaths(k keeping) []exitPath {
	results := []string{k.settles, k.finishes}
	long := 3 * pausedLease
	return []exitPath{
		{name: "done, sent", onTheWire: results},
		{name: "done, running", job: chaos.Job{Takes: pausedLease / 2, Do: chaos.Ignore}, sends: results},
		{name: "error, sent", job: chaos.Job{Do: chaos.Fail}, onTheWire: results, doomed: true},
		{name: "poison, sent", job: chaos.Job{Do: chaos.Doom}, onTheWire: results, doomed: true},
		{name: "release, running", job: chaos.Job{Takes: long}, sends: []string{k.settles}},
		{name: "extend, sent", job: chaos.Job{Takes: long}, onTheWire: []string{k.extends}},
		{name: "transaction, running", job: chaos.Job{Takes: 2 * pausedLease, Do: chaos.Ignore}, tx: true, sends: results},
		{name: "transaction, fencing", job: chaos.Job{Do: chaos.Ignore}, tx: true, onTheWire: []string{k.fences}},
	}
}

// barPaused stops a worker on every path, each time on a database of its own.
func barPaused(b *bar) {
	k := b.keeping()
	rounds, paths := pick(b, 1, 1, 2), exitPaths(k)
	var fenced, results int64
	for range rounds {
		for _, path := range paths {
			f, n := b.paused(b.dsn(), path, k.renewal)
			fenced, results = fenced+f, results+n
		}
	}
	b.figure("%d exit paths × %d: 0 stale writes accepted of %d results, %d fenced", len(paths), rounds, results, fenced)
}

// TestAStoppedWorkerKeepsNothingTwice stops a worker whose consumers are done when it goes on: once others have its messages, and
// once its transactions still do.
// Promise: fenced
func TestAStoppedWorkerKeepsNothingTwice(t *testing.T) {
	t.Parallel()
	k := new(bar).keeping()
	for i, path := range exitPaths(k) {
		if path.name == "done, running" || path.name == "transaction, running" {
			t.Run(path.name, func(t *testing.T) {
				t.Parallel()
				b := &bar{T: t, Rand: rand.New(rand.NewPCG(4, uint64(i))), name: "4-paused"}
				b.paused(b.dsn(), path, k.renewal)
			})
		}
	}
}

// paused stops a worker on one path and returns how many of its results were
// void by its own count, and how many there were.
func (b *bar) paused(dsn string, path exitPath, renewal string) (fenced, results int64) {
	keeps := map[string]chaos.Options{"one": {Keep: true}}
	config, n := chaos.WorkerConfig{Lease: pausedLease, Plain: []string{"one"}, Options: keeps}, 10+b.IntN(30)
	if path.job.Takes > pausedLease { // what was recovered runs 8 at a time
		n = 8 + b.IntN(9)
	}
	held := 1 // statements on the wire, each for all messages or, of transactions, for one
	if path.tx {
		config, n = chaos.WorkerConfig{Lease: pausedLease, Tx: []string{"one"}, Options: keeps}, 1+b.IntN(8)
		held = n
	}
	locked := path.tx && path.onTheWire == nil // its transactions have the rows
	proxy, through := newProxy(b, dsn)
	r := newRun(b, dsn, config)
	gate, renewals := newGate(path.onTheWire), newGate([]string{renewal})
	var sent, resumed atomic.Bool
	proxy.Decide(func(sql string) chaos.Fault {
		if !resumed.Load() || path.sends == nil {
			return gate.decide(sql)
		}
		if slices.ContainsFunc(path.sends, func(part string) bool { return strings.Contains(sql, part) }) {
			sent.Store(true)
			renewals.open()
		}
		return renewals.decide(sql) // a renewal would tell it that it has nothing left to send
	})
	b.Cleanup(gate.open) // before the proxy closes, which waits for it
	b.Cleanup(renewals.open)
	numbers := r.plant(slices.Repeat([]chaos.Job{path.job}, n)...)
	if path.doomed {
		r.doomed = numbers
	}

	r.config.DSN = through
	w := r.start(0)
	b.eventually(30*time.Second, path.name+": the worker is where it is to stop", func() bool {
		if path.onTheWire != nil {
			return gate.holds() >= held
		}
		return len(r.ledger()) == n
	})
	w.Signal(syscall.SIGSTOP)
	pause(2*pausedLease + 500*time.Millisecond)

	heir := r.inherit(n, locked)
	before := r.everything()
	gate.open()                         // the statement arrives, late
	pause(200 * time.Millisecond)       // as long as it takes to be carried out
	arrived := r.everything() == before // while the worker is still stopped
	resumed.Store(true)
	w.Signal(syscall.SIGCONT)
	report, _, err := w.Stop()
	if err != nil {
		b.Errorf("%s: %v", path.name, err)
	}
	if sent.Load() != (path.sends != nil) {
		b.Errorf("%s: the worker sent its results when it went on: got %t, want %t", path.name, sent.Load(), path.sends != nil)
	}
	after := r.everything()
	if locked {
		// They were nobody else's all the time: its transactions commit, which removes
		// them, and all there is to fence is the end of the claim.
		before = strings.Join([]string{"consumer_messages: 0", "message_claims: 0", "poisoned_messages: 0"}, "\n")
		after, _, _ = strings.Cut(after, "\nconsumed_messages")
		if n := r.count("SELECT count(*) FROM (SELECT job FROM effects GROUP BY job) once"); n != len(numbers) {
			b.Errorf("%s: effects: got those of %d jobs, want %d", path.name, n, len(numbers))
		}
	}
	if after != before || !arrived {
		b.Errorf("%s: a stale write was accepted:\nbefore:\n%s\nafter:\n%s", path.name, before, after)
	}
	if report.Stats.Fenced != int64(n) {
		b.Errorf("%s: fenced: got %d, want %d", path.name, report.Stats.Fenced, n)
	}
	r.workers, r.config.DSN = nil, dsn
	heir()
	r.start(0)
	b.eventually(30*time.Second, path.name+": everything is settled", r.settled)
	r.stopAll()
	r.judge()
	if !path.doomed { // what is poisoned is not kept
		r.keepsEach()
	}
	return report.Stats.Fenced, int64(n)
}

// inherit takes over what the stopped worker held, like any other process would,
// and returns how to let it go again.
func (r *run) inherit(n int, locked bool) (letGo func()) {
	r.Helper()
	s := testapp.Must[*store.Store](r)(store.For(r.db.Dialect().Name(), bus.Tables{}))
	recovered, err := s.Claims.Recover(r.ctx, r.db, 3)
	want := store.Recovered{Claims: recovered.Claims, Crashed: n}
	if locked {
		want.Crashed = 0
	}
	if err != nil || recovered.Claims == 0 || recovered != want {
		r.Fatalf("recover: got %+v and error %v, want %+v and some claims", recovered, err, want)
	}
	if locked {
		return func() {}
	}
	const heir = "heir"
	claim, err := s.Claims.Claim(r.ctx, r.db, store.ClaimRequest{
		Owner: heir, Lease: time.Hour, Wants: []store.Want{{Consumer: "one", Payload: chaos.Job{}.PayloadType(), Limit: n}},
		Select: store.Suspects, Limit: n, MaxBytes: 1 << 20,
	})
	if err != nil || len(claim.Messages) != n {
		r.Fatalf("claim: got %d messages and error %v, want %d", len(claim.Messages), err, n)
	}
	return func() {
		r.Helper()
		testapp.OK(r, s.Claims.Disclaim(r.ctx, r.db, heir, []int64{claim.ID}))
	}
}

// everything is the content of all tables of the library that a worker writes.
func (r *run) everything() string {
	r.Helper()
	var lines []string
	for _, table := range []string{"consumer_messages", "message_claims", "poisoned_messages", "consumed_messages"} {
		var rows []map[string]any
		testapp.OK(r, r.db.NewRaw("SELECT * FROM ? ORDER BY id", bun.Ident(table)).Scan(r.ctx, &rows))
		lines = append(lines, fmt.Sprintf("%s: %d", table, len(rows)))
		for _, row := range rows {
			lines = append(lines, fmt.Sprint(row))
		}
	}
	return strings.Join(lines, "\n")
}

// gate holds statements that have one of the parts, until it is opened.
type gate struct {
	parts  []string
	came   chan struct{}
	opened chan struct{}
	once   sync.Once
}

func newGate(parts []string) *gate {
	return &gate{parts: parts, came: make(chan struct{}, 100), opened: make(chan struct{})}
}

func (g *gate) decide(sql string) chaos.Fault {
	if slices.ContainsFunc(g.parts, func(part string) bool { return strings.Contains(sql, part) }) {
		select {
		case g.came <- struct{}{}:
		default:
		}
		<-g.opened
	}
	return chaos.Forward
}

// holds tells how many statements have come to the gate.
func (g *gate) holds() int { return len(g.came) }

// open may be called more than once.
func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }
