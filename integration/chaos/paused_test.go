//go:build unix

package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
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
	doomed    bool
}

const pausedLease = 2 * time.Second

func exitPaths() []exitPath {
	settle, finish := `'snooze'`, `AS messages FROM gone`
	long := 3 * pausedLease
	return []exitPath{
		{name: "done, sent", onTheWire: []string{settle, finish}},
		{name: "done, running", job: chaos.Job{Takes: pausedLease / 2, Do: chaos.Ignore}},
		{name: "error, sent", job: chaos.Job{Do: chaos.Fail}, onTheWire: []string{settle}, doomed: true},
		{name: "poison, sent", job: chaos.Job{Do: chaos.Doom}, onTheWire: []string{settle}, doomed: true},
		{name: "release, running", job: chaos.Job{Takes: long}},
		{name: "extend, sent", job: chaos.Job{Takes: long}, onTheWire: []string{`SET leased_until`}},
		{name: "transaction, running", job: chaos.Job{Takes: pausedLease / 2, Do: chaos.Ignore}, tx: true},
	}
}

func barPaused(b *bar) {
	rounds := pick(b, 1, 1, 2)
	var fenced, results int64
	for range rounds {
		for _, path := range exitPaths() {
			f, n := b.paused(path)
			fenced, results = fenced+f, results+n
		}
	}
	b.figure("%d exit paths × %d: 0 stale writes accepted of %d results, %d fenced", len(exitPaths()), rounds, results, fenced)
}

// paused stops a worker on one path and returns how many of its results were
// void by its own count, and how many there were.
func (b *bar) paused(path exitPath) (fenced, results int64) {
	config, n := chaos.WorkerConfig{Lease: pausedLease, Plain: []string{"one"}}, 10+b.IntN(30)
	if path.job.Takes > pausedLease { // what was recovered runs 8 at a time
		n = 8 + b.IntN(9)
	}
	if path.tx {
		config, n = chaos.WorkerConfig{Lease: pausedLease, Tx: []string{"one"}}, 1+b.IntN(8)
	}
	dsn := testdb.PostgresDSN(b)
	proxy, through := newProxy(b, dsn)
	r := newRun(b, dsn, config)
	gate := newGate(path.onTheWire)
	proxy.Decide(gate.decide)
	b.Cleanup(gate.open) // before the proxy closes, which waits for it
	numbers := r.plant(slices.Repeat([]chaos.Job{path.job}, n)...)
	if path.doomed {
		r.doomed = numbers
	}

	r.config.DSN = through
	w := r.start(0)
	b.eventually(30*time.Second, path.name+": the worker is where it is to stop", func() bool {
		if path.onTheWire != nil {
			return gate.closed()
		}
		return len(r.ledger()) == n
	})
	w.Signal(syscall.SIGSTOP)
	pause(2*pausedLease + 500*time.Millisecond)

	heir := r.inherit(n, path.tx)
	before := r.everything()
	gate.open()                         // the statement arrives, late
	pause(200 * time.Millisecond)       // as long as it takes to be carried out
	arrived := r.everything() == before // while the worker is still stopped
	w.Signal(syscall.SIGCONT)
	report, _, err := w.Stop()
	if err != nil {
		b.Errorf("%s: %v", path.name, err)
	}
	after := r.everything()
	if path.tx {
		// The worker had the rows locked all the time, so they were nobody else's:
		// its transactions commit, and all there is to fence is the release.
		if pending := r.pending(); pending != 0 {
			b.Errorf("%s: pending: got %d, want none", path.name, pending)
		}
	} else if after != before || !arrived {
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
	return report.Stats.Fenced, int64(n)
}

// inherit takes over what the stopped worker held, like any other process would,
// and returns how to let it go again.
func (r *run) inherit(n int, locked bool) (letGo func()) {
	r.Helper()
	s, err := store.For(dialect.PG, bus.Tables{})
	if err != nil {
		r.Fatal(err)
	}
	recovered, err := s.Recover(r.ctx, r.db, 3)
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
	claim, err := s.Claim(r.ctx, r.db, store.ClaimRequest{
		Owner: heir, Lease: time.Hour, Wants: []store.Want{{Consumer: "one", Payload: chaos.Job{}.PayloadType(), Limit: n}},
		Select: store.Suspects, Limit: n, MaxBytes: 1 << 20,
	})
	if err != nil || len(claim.Messages) != n {
		r.Fatalf("claim: got %d messages and error %v, want %d", len(claim.Messages), err, n)
	}
	return func() {
		r.Helper()
		if err := s.Disclaim(r.ctx, r.db, heir, []int64{claim.ID}); err != nil {
			r.Fatal(err)
		}
	}
}

// everything is the content of all tables that a worker writes.
func (r *run) everything() string {
	r.Helper()
	var lines []string
	for _, table := range []string{"consumer_messages", "message_claims", "poisoned_messages", "effects"} {
		var rows []string
		if err := r.db.NewRaw("SELECT t::text FROM "+table+" t ORDER BY 1").Scan(r.ctx, &rows); err != nil {
			r.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s: %d", table, len(rows)))
		lines = append(lines, rows...)
	}
	return strings.Join(lines, "\n")
}

// gate holds the first statement that has one of the parts, until it is opened.
type gate struct {
	parts  []string
	came   chan struct{}
	opened chan struct{}
	once   sync.Once
}

func newGate(parts []string) *gate {
	return &gate{parts: parts, came: make(chan struct{}, 1), opened: make(chan struct{})}
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

// closed tells whether the gate holds a statement.
func (g *gate) closed() bool { return len(g.came) > 0 }

// open may be called more than once.
func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }
