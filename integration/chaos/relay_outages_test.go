//go:build unix

package chaos_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 14, inbox: the receiver's database goes away under delivery, and in the end everything is
// delivered again. Nothing is lost, nothing is done twice, and nothing is acknowledged that is not
// committed.

func barRelayInbox(b *bar) {
	server := newServer(b)
	r := newBroker(b, 1, chaos.RelayStream)
	r.sender(testdb.PostgresDSN(b))
	r.receiver(server.DSN())
	for i := range 2 {
		r.from.start(i)
		r.to.start(i)
	}
	lasts := pick(b, []time.Duration{time.Second, 2 * time.Second}, slices.Repeat([]time.Duration{5 * time.Second}, 5), []time.Duration{5 * time.Second, time.Minute, 5 * time.Second, time.Minute})
	takes := func() time.Duration { return b.between(0, 4*time.Millisecond) }
	took := time.Duration(0)
	for i, lasting := range lasts {
		r.from.produce(500, takes)
		pause(b.between(20*time.Millisecond, 150*time.Millisecond))
		if i%2 == 0 {
			server.Kill()
		} else {
			server.StopImmediately()
		}
		r.from.produce(500, takes)
		pause(lasting)
		acknowledged := r.acknowledged()
		up := start(b, server)
		r.to.refresh()
		if committed := r.to.count("SELECT count(*) FROM inbox_messages"); acknowledged > committed {
			b.Errorf("acknowledged while the database was away: got %d, of which %d are committed", acknowledged, committed)
		}
		r.from.produce(500, takes) // so that there is work for each
		took = max(took, r.to.healed(up))
	}
	r.settle()
	again := r.redeliver()
	r.settle()
	f := r.judge(false)
	b.within("healed", took, healLimit)
	b.figure("%d outages of %s to %s, %d messages of 2 consumers: %v; healed in %.1fs (goal ≤ %s), %d delivered again",
		len(lasts), slices.Min(lasts), slices.Max(lasts), len(r.from.jobs), f.to, took.Seconds(), healLimit, again)
}

// acknowledged is how many jobs the receivers have acknowledged.
func (r *relayed) acknowledged() int {
	r.Helper()
	info := r.info()
	return r.published() - int(info.NumPending) - info.NumAckPending
}

// published is how many records the stream has.
func (r *relayed) published() (n int) {
	r.Helper()
	r.ask("look at the stream", func(ctx context.Context) error {
		s, err := r.js.Stream(ctx, r.stream)
		if err == nil {
			n = int(s.CachedInfo().State.Msgs)
		}
		return err
	})
	return n
}

// redeliver has everything delivered again, by another consumer of the same name, and returns how
// much that was.
func (r *relayed) redeliver() int {
	r.Helper()
	r.ask("delete the consumer", func(ctx context.Context) error {
		return r.js.DeleteConsumer(ctx, r.stream, chaos.RelayConsumer)
	})
	r.newConsumer()
	r.eventually(time.Minute, "everything is delivered again", r.delivered)
	return int(r.info().Delivered.Consumer)
}

// Bar 14, partial: of a batch one record is too large, and one has nowhere to go. The others are
// published once, the one is poisoned, and the other waits until it has.

func barRelayPartial(b *bar) {
	const size = 256 // what is published at once
	r := newBroker(b, 1, chaos.RelayStream)
	r.sender(testdb.PostgresDSN(b))
	jobs := make([]chaos.Job, size)
	places := b.Perm(size)
	jobs[places[0]].Pad = strings.Repeat("x", 1<<20-200) // no larger than a message may be, but with headers
	jobs[places[1]].Do = chaos.Stray
	r.from.plant(jobs...)
	large, stray := chaos.Run{Consumer: publishes, Job: places[0]}, chaos.Run{Consumer: publishes, Job: places[1]}
	r.from.doomed = []int{large.Job}
	r.from.start(0)
	b.eventually(time.Minute, "the one is published again and again", func() bool { return r.from.ledger().Count(chaos.Failed)[stray] >= 3 })
	// Of their first batch none is done before all have begun.
	together := slices.IndexFunc(r.from.ledger(), func(e chaos.Event) bool { return e.Kind != chaos.Started })
	once := 0
	for job, n := range r.stored(r.stream) {
		if n == 1 && job != large.Job && job != stray.Job {
			once++
		}
	}
	poisoned := r.from.count("SELECT count(*) FROM poisoned_messages WHERE attempts = 1")
	waiting := r.from.count("SELECT count(*) FROM consumer_messages WHERE attempts = 0")
	all := r.from.pending() + r.from.count("SELECT count(*) FROM poisoned_messages")
	if together != size || once != size-2 || poisoned != 1 || waiting != 1 || all != 2 {
		b.Errorf("of %d in a batch of %d: got %d published once, %d poisoned at attempt 1, %d waiting with 0 attempts, %d waiting or poisoned; want %d, 1, 1 and 2",
			size, together, once, poisoned, waiting, all, size-2)
	}
	for run, n := range r.from.ledger().Count(chaos.Started) {
		if n > 1 && run != stray {
			b.Errorf("%v: got it published %d times, want once", run, n)
		}
	}
	if found := r.from.rowsOf("poisoned_messages"); !slices.Equal(found, []chaos.Run{large}) {
		b.Errorf("poisoned: got %v, want %v", found, large)
	}
	r.newStream(chaos.RelayAstray)
	took := b.eventually(time.Minute, "the one that had nowhere to go is published", r.from.settled)
	r.from.stopAll()
	f := r.from.judge()
	if found := r.stored(chaos.RelayAstray); len(found) != 1 || found[stray.Job] != 1 {
		b.Errorf("published once there was a place: got %v, want job %d once", found, stray.Job)
	}
	b.figure("a batch of %d: %d published once, %d poisoned at attempt 1, %d waiting with 0 attempts, and published %.1fs after there was a place: %v",
		together, once, poisoned, waiting, took.Seconds(), f)
}

// Bar 14, outage: the broker goes away while much waits. Nothing is written to what waits, and
// nobody says much of it. Once the broker is back all is published.

func barRelayOutage(b *bar) {
	backlog, lasts := pick(b, 20_000, 100_000, 300_000), pick(b, 4*time.Second, time.Minute, 10*time.Minute)
	r := newBroker(b, 1, chaos.RelayStream)
	r.sender(testdb.PostgresDSN(b))
	r.from.start(0)
	r.from.start(1)
	none := func() time.Duration { return 0 }
	r.from.produce(2000, none)
	b.eventually(time.Minute, "the relays publish", func() bool { return r.published() > 0 })
	killed := time.Now()
	if err := r.servers.Kill(); err != nil {
		b.Fatal(err)
	}
	gone := time.Now()
	r.from.produce(backlog, none)
	b.eventually(time.Minute, "all claims have been given back", func() bool { return r.from.count("SELECT count(*) FROM message_claims") == 0 })
	pause(time.Second) // what the broker had is settled, too
	r.from.exec("CREATE TABLE before AS SELECT id, ctid::text AS place, xmin::text AS writer FROM consumer_messages")
	used, noCPU := r.from.cpu()
	begun := time.Now()
	pause(lasts)
	lasted := time.Since(begun)
	share := r.from.busiest(used, lasted)
	r.nothingWritten()
	logged := r.from.quiet(gone, time.Now())
	if limit := pick(b, 0.05, 0.02, 0.005); noCPU == nil && share > limit {
		b.Errorf("processor time of a worker during the outage: got %.1f %%, want at most %.1f %%", 100*share, 100*limit)
	}
	had, up := r.from.count("SELECT count(*) FROM before"), time.Now()
	if err := r.servers.Start(); err != nil {
		b.Fatal(err)
	}
	first := b.eventually(time.Minute, "something is published", func() bool { return r.from.pending() < had })
	b.within("the first is published", first, 36*time.Second)
	drained := b.eventually(4*time.Minute, "everything is published", r.from.settled)
	r.from.stopAll()
	f := r.from.judge()
	stored, inFlight := r.stored(r.stream), inDoubt(r.from.ledger(), killed, gone)
	if len(stored) != len(r.from.jobs) || doubled(stored) > inFlight {
		b.Errorf("the broker's records: got %d jobs of %d, and %d twice, want at most the %d that were in flight", len(stored), len(r.from.jobs), doubled(stored), inFlight)
	}
	// Each probe is a line of the log, too, at a level that the workers do not write.
	probes := failed(r.from.ledger(), begun, begun.Add(lasted))
	if limit := len(r.from.former) * int(lasted/time.Second); probes > limit {
		b.Errorf("records that were tried during the outage: got %d, want at most %d, one a second for each worker", probes, limit)
	}
	b.figure("%d waited for %.0fs: rows written 0, attempts 0, poisoned 0; %d probes, %.1f %% of a processor, %s; first published %.1fs after %.1fs, the others in %.1fs (%.0f/s); the broker has %d twice, %d were in flight: %v",
		had, lasted.Seconds(), probes, 100*share, logged, first.Seconds(), up.Sub(gone).Seconds(), drained.Seconds(), float64(had)/drained.Seconds(), doubled(stored), inFlight, f)
}

// nothingWritten fails the bar if anything was written to what waits.
func (r *relayed) nothingWritten() {
	r.Helper()
	written := r.from.count("SELECT count(*) FROM before b FULL JOIN consumer_messages m ON m.id = b.id WHERE (m.ctid::text, m.xmin::text) IS DISTINCT FROM (b.place, b.writer)")
	charged := r.from.count("SELECT count(*) FROM consumer_messages WHERE attempts > 0 OR crashes > 0")
	poisoned := r.from.count("SELECT count(*) FROM poisoned_messages")
	if written+charged+poisoned > 0 {
		r.Errorf("during the outage: got %d rows written, %d with attempts or crashes, %d poisoned, want none", written, charged, poisoned)
	}
}

// failed is how many runs failed in a span of time.
func failed(ledger chaos.Ledger, from, to time.Time) (n int) {
	for _, e := range ledger {
		if e.Kind == chaos.Failed && !e.At.Before(from) && e.At.Before(to) {
			n++
		}
	}
	return n
}

// inDoubt is how many runs were under way while something was killed, and failed.
func inDoubt(ledger chaos.Ledger, killed, gone time.Time) (n int) {
	type key struct {
		worker string
		run    chaos.Run
	}
	started := make(map[key]time.Time)
	for _, e := range ledger {
		at := key{e.Worker, chaos.Run{Consumer: e.Consumer, Job: e.Job}}
		switch {
		case e.Kind == chaos.Started:
			started[at] = e.At
		case e.Kind == chaos.Failed && e.At.After(killed) && started[at].Before(gone):
			n++
		}
	}
	return n
}
