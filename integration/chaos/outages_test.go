//go:build unix

package chaos_test

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// Bar 2: the database goes away under load, in every way it can. Nothing is lost,
// no innocent is poisoned, and five seconds after it answers again every worker
// works again.

const healLimit = 5 * time.Second

// outages are the consumers and the load of this bar: some work is in flight
// whenever a fault comes.
func outages() (chaos.WorkerConfig, loadSpec) {
	return chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}},
		loadSpec{batch: 10, every: 50 * time.Millisecond, low: 5 * time.Millisecond, high: 40 * time.Millisecond}
}

// finish lets the crew settle everything, stops it, and has the run judged. It returns
// the runs of consumers, none of which outlived its lease.
func (r *run) finish(l *load) []chaos.Term {
	r.Helper()
	l.end()
	r.refresh()
	took := r.eventually(2*time.Minute, "everything is settled", r.settled)
	r.stopAll()
	doubtful, committed := l.resolve()
	f, terms := r.judge(), r.keptLeases()
	if found := r.ledger().Overlaps(math.MaxInt64); len(found) > 0 {
		r.Errorf("consumers at one message together: got %d, such as %v, want none", len(found), found[0])
	}
	r.nonePoisoned()
	r.figure("%d jobs x %d consumers, %d of %d batches in doubt of which %d had committed: %v; crashes counted %d, outlived leases 0 of %d, the rest settled in %.1fs",
		len(r.jobs), len(r.config.Plain)+len(r.config.Tx), doubtful, len(l.batches), committed, f, r.crashes, len(terms), took.Seconds())
	return terms
}

// nobodyVanished fails the bar when a crash was counted: every lease had run out, and
// every owner was there to renew it.
func (r *run) nobodyVanished() {
	r.Helper()
	if r.crashes > 0 {
		r.Errorf("crashes counted: got %d, want none, since nobody vanished", r.crashes)
	}
}

// within fails the bar when something took longer than allowed.
func (b *bar) within(what string, took, limit time.Duration) {
	b.Helper()
	if took > limit {
		b.Errorf("%s: got %s, want at most %s", what, took, limit)
	}
}

// barStops has a server stopped and killed.
func barStops(b *bar) {
	server, stopped, killed := newServer(b), of(b, 10, 1), of(b, 5, 3) // an orderly stop, as MariaDB's is, says little
	config, spec := outages()
	r := newRun(b, server.DSN(), config)
	r.crew(3)
	faults := slices.Concat(slices.Repeat([]func(){server.Kill}, killed), slices.Repeat([]func(){server.StopImmediately}, stopped))
	b.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	l := r.load(spec)
	var worst, total time.Duration
	begun := time.Now()
	for _, fault := range faults {
		pause(b.between(500*time.Millisecond, 1500*time.Millisecond))
		fault()
		pause(b.between(0, 2*time.Second))
		took := r.healed(start(b, server))
		worst, total = max(worst, took), total+took
	}
	logged := r.quiet(begun, time.Now())
	r.finish(l)
	b.within("healed", worst, healLimit)
	b.figure("%d immediate stops and %d kills of the server: healed in %.1fs at worst, %.1fs on average (goal ≤ %s); %s",
		stopped, killed, worst.Seconds(), total.Seconds()/float64(len(faults)), healLimit, logged)
}

func barBackends(b *bar) {
	b.severed("backends terminated", time.Minute, func(r *run, _ *chaos.Proxy) int {
		r.refresh()
		// All, but for the one that says so: the producer's and the workers'.
		return r.count("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
	})
}

// barResets cuts the workers' connections, of which the server learns no sooner than
// they do.
func barResets(b *bar) {
	b.severed("connections reset", 30*time.Second, func(_ *run, proxy *chaos.Proxy) int { return proxy.Reset() })
}

// severed cuts all connections every two seconds.
func (b *bar) severed(what string, lasts time.Duration, sever func(*run, *chaos.Proxy) int) {
	config, spec := outages()
	r := newRun(b, newServer(b).DSN(), config)
	proxy, through := newProxy(b, r.dsn)
	r.config.DSN = through
	r.crew(3)
	l := r.load(spec)
	begun := time.Now()
	cut := 0
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for time.Since(begun) < lasts { // whether they have recovered from the last one or not
		<-tick.C
		cut += sever(r, proxy)
	}
	worst := r.healed(b.answering(through))
	logged := r.quiet(begun, time.Now())
	r.finish(l)
	b.within("healed", worst, healLimit)
	if cut == 0 {
		b.Errorf("%s: got none, want some", what)
	}
	b.figure("%d %s, all of them every 2s for %s: healed in %.1fs (goal ≤ %s); %s", cut, what, lasts, worst.Seconds(), healLimit, logged)
}

// mayTry is how often a worker may try to reach a database that is away, per
// second: its loops and its renewals, each with a backoff of its own.
const mayTry = 10

func barOutage(b *bar) {
	const workers = 3
	server := newServer(b)
	config, _ := outages()
	r := newRun(b, server.DSN(), config)
	proxy, through := newProxy(b, r.dsn)
	r.config.DSN = through
	var statements atomic.Int64
	proxy.Decide(func(string) chaos.Fault { statements.Add(1); return chaos.Forward })
	r.crew(workers)
	l := r.load(longLoad())
	pause(5 * time.Second)
	crew := slices.Clone(r.workers)
	server.StopImmediately()
	gone, tries, sent := time.Now(), proxy.Accepted(), statements.Load()
	used, noCPU := r.cpu()
	pause(time.Minute)
	lasted := time.Since(gone)
	share := r.busiest(used, lasted)
	tried, stated := proxy.Accepted()-tries, statements.Load()-sent
	logged := r.quiet(gone, time.Now())
	up := start(b, server)
	took := r.healed(up)
	const more = 3 // as many as it takes crashes to be poisoned
	for range more {
		server.StopImmediately()
		pause(2 * r.config.Lease)
		took = max(took, r.healed(start(b, server)))
	}
	running, left := r.underWay(r.finish(l), gone, crew...)
	b.within("healed", took, healLimit)
	r.nobodyVanished()
	perSecond := float64(tried) / lasted.Seconds() / workers
	if perSecond > mayTry {
		b.Errorf("tries to connect: got %.1f per worker and second, want at most %d", perSecond, mayTry)
	}
	if noCPU != nil {
		b.figure("processor time not measured: %v", noCPU)
	}
	if share > 0.05 {
		b.Errorf("processor time of a worker during the outage: got %.1f %%, want at most 5 %%", 100*share)
	}
	b.figure("an outage of %.0fs, and %d of two leases, lease %s: healed in %.1fs (goal ≤ %s); %.1f tries to connect per worker and second (goal ≤ %d), %d statements, %.1f %% of a processor at most; of %d consumers cut off the last ended %.2fs before its lease did; %s",
		lasted.Seconds(), more, r.config.Lease, took.Seconds(), healLimit, perSecond, mayTry, stated, 100*share, running, left.Seconds(), logged)
}
