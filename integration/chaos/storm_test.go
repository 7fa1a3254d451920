//go:build unix

package chaos_test

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 6, after crashes the innocent come back at full speed, and none is poisoned: in a
// storm of kills, by a process that starts as an outage ends, and when many messages
// were in flight.

// barStorm kills one of three workers, one that works, every 0.3 to 2 s.
func barStorm(b *bar) {
	for range pick(b, 1, 1, 3) {
		storm(b, pick(b, 1500, 5000, 30_000))
	}
}

func storm(b *bar, messages int) {
	const crew = 3
	r := newRun(b, b.dsn(), chaos.WorkerConfig{Plain: []string{"one"}})
	r.crew(crew)
	lasts := pick(b, 10*time.Second, 15*time.Second, time.Minute)
	const every = 50 * time.Millisecond
	l := r.load(loadSpec{batch: messages / int(lasts/every), every: every, low: time.Millisecond, high: 50 * time.Millisecond})
	begun, kills := time.Now(), 0
	for ; time.Since(begun) < lasts; kills++ {
		pause(b.between(300*time.Millisecond, 2*time.Second))
		victim := r.atWork()
		r.kill(victim)
		r.start(victim)
	}
	l.end()
	stopped, backlog := time.Now(), r.pending()
	r.eventually(3*time.Minute, "everything is settled", r.settled)
	took := time.Since(stopped)
	r.stopAll()
	l.resolve()
	f := r.judgeAfter(true)
	r.nonePoisoned()
	_, running := r.evidence().Strikes(r.killed)
	if len(running) < kills/4 {
		b.Errorf("kills that hit a worker at work: got %d of %d, want a quarter of them or more", len(running), kills)
	}
	b.within("settled after the last kill", took, r.config.Lease+15*time.Second)
	b.figure("%d kills in %.0fs, %d of them of workers at work, %d messages of 1 to 50 ms, lease %s: most crashes of one %d; %d left at the last kill settled in %.1fs: %v",
		kills, stopped.Sub(begun).Seconds(), len(running), len(r.jobs), r.config.Lease, r.mostCrashes(), backlog, took.Seconds(), f)
}

// mostCrashes is with how many crashes counted a message ever started.
func (r *run) mostCrashes() (most int) {
	r.Helper()
	for _, e := range r.ledger() {
		most = max(most, e.Crashes)
	}
	return most
}

// barReturn starts a process, again and again until it runs, while an outage of a few
// leases lasts: it comes to work before the owners of what is in flight have renewed
// their leases, and must not take them for dead.
func barReturn(b *bar) {
	server := newServer(b)
	r := newRun(b, server.DSN(), chaos.WorkerConfig{Plain: []string{"one"}})
	r.start(0)
	outages := pick(b, 1, 1, 5)
	const inFlight = 6
	for i := range outages {
		r.produce(inFlight, func() time.Duration { return 4 * time.Second })
		r.eventually(time.Minute, "all are in flight", func() bool { return len(r.ledger().Count(chaos.Started)) == inFlight*(i+1) })
		server.StopImmediately()
		pause(2*r.config.Lease + 2*time.Second)
		r.returning(server)
		r.eventually(time.Minute, "everything is settled", r.settled)
	}
	r.stopAll()
	f := r.judge()
	r.nobodyVanished()
	if most := r.mostCrashes(); most > 0 {
		b.Errorf("crashes charged to messages of living owners: got %d on one, want none", most)
	}
	r.nonePoisoned()
	b.figure("%d outages of more than two leases, lease %s, %d in flight at each, a process that starts as each ends: crashes counted %d, %v",
		outages, r.config.Lease, inFlight, r.crashes, f)
}

// returning starts a server, and meanwhile one more worker, again whenever it ends by
// itself, until it runs.
func (r *run) returning(server *chaos.Server) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	up := make(chan error, 1)
	go func() { up <- server.Start(ctx) }() // waited for below
	place := len(r.workers)
	for running := false; !running; {
		w := r.start(place)
		select {
		case <-w.Ended():
			r.died[w] = true
		case <-time.After(2 * time.Second):
			running = true
		}
	}
	testapp.OK(r, <-up)
	r.refresh()
}

// barComeback kills processes with many messages in flight, and has another settle them.
func barComeback(b *bar) {
	b.comeback(1, 64, time.Second)
	b.comeback(3, 2000, 5*time.Second)
}

// comeback kills so many workers that together have so many in flight. The limit counts
// from the end of the lease.
func (b *bar) comeback(workers, inFlight int, limit time.Duration) {
	r := newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Plain: []string{"one"}, Handler: (inFlight + workers - 1) / workers})
	r.produce(inFlight, func() time.Duration { return time.Hour })
	r.crew(workers)
	r.eventually(time.Minute, "all are in flight", func() bool { return len(r.ledger().Count(chaos.Started)) == inFlight })
	// What they take is stored with them: whoever gets them next is done at once.
	r.exec("UPDATE consumer_messages SET payload = " + b.with("takes", "0"))
	r.start(workers) // and has been up for a while when the others die
	pause(2 * time.Second)
	killed := time.Now()
	for i := range workers {
		r.kill(i)
	}
	r.eventually(2*time.Minute, "everything is settled", r.settled)
	took := time.Since(killed) - r.config.Lease
	r.workers = r.workers[workers:]
	r.stopAll()
	f := r.judge()
	b.within("settled after the lease", took, limit)
	r.nonePoisoned()
	b.figure("%d in flight in %d killed processes, lease %s: settled %.1fs after the lease (goal ≤ %s): %v", inFlight, workers,
		r.config.Lease, took.Seconds(), limit, f)
}
