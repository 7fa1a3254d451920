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
	r.from.crew(2)
	r.to.crew(2)
	lasts := pick(b, []time.Duration{time.Second, 2 * time.Second}, slices.Repeat([]time.Duration{5 * time.Second}, 5),
		[]time.Duration{5 * time.Second, time.Minute, 5 * time.Second, time.Minute})
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
	if again < len(r.from.jobs) {
		b.Errorf("delivered again: got %d of %d, want all", again, len(r.from.jobs))
	}
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

// inDoubt is how many runs were under way while something was killed, and failed.
func inDoubt(ledger chaos.Ledger, killed, gone time.Time) (n int) {
	started := make(map[chaos.RunBy]time.Time)
	for _, e := range ledger {
		switch {
		case e.Kind == chaos.Started:
			started[e.By()] = e.At
		case e.Kind == chaos.Failed && e.At.After(killed) && started[e.By()].Before(gone):
			n++
		}
	}
	return n
}
