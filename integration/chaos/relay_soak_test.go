//go:build unix

package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Bar 14, soak: jobs go round a ring of three services, at a steady rate, while a worker is killed
// every while. Each job is done once in each service, the heaps of those that live all the time do
// not grow, and the inboxes have what is remembered and no more.

const (
	ringSize  = 3
	ringRate  = 40 // jobs a second
	heapLimit = 10 << 20
)

// ring are the services, each with the stream that it reads.
type ring struct {
	*bar
	services  []*relayed
	retention time.Duration
	produced  []time.Time // when each job was
}

func newRing(b *bar) *ring {
	b.Helper()
	g := &ring{bar: b, retention: pick(b, time.Minute, time.Minute, 5*time.Minute)}
	name := func(i int) string { return fmt.Sprintf("ring-%d", i%ringSize) }
	first := newBroker(b, 1, name(0))
	for i := range ringSize {
		s := *first
		s.stream = name(i)
		if i > 0 {
			s.newStream(s.stream)
			s.newConsumer()
		}
		s.to = newRun(b, testdb.PostgresDSN(b), receives(chaos.RelayConfig{
			Server: s.servers.URL(), Publishes: publishes, Receives: true,
			Ring: chaos.RingConfig{Stream: name(i), Next: name(i + 1), By: "one", Retention: g.retention},
		}))
		g.services = append(g.services, &s)
	}
	return g
}

func barRelaySoak(b *bar) {
	g := newRing(b)
	for _, s := range g.services {
		s.to.start(0)
	}
	lasts, every := pick(b, 10*time.Second, 80*time.Second, time.Hour), pick(b, 3*time.Second, 8*time.Second, 30*time.Second)
	kills := g.soak(lasts, every)
	last := time.Now()
	b.eventually(4*time.Minute, "everything is settled", g.settled)
	took := time.Since(last)
	inboxes := g.inboxes()
	grown := g.grown()
	for _, s := range g.services {
		s.to.stopAll()
	}
	lost, other := 0, 0
	for _, s := range g.services {
		s.to.jobs = g.services[0].to.jobs
		s.to.never = g.services[0].to.never
		f := s.to.judgeAfter(true)
		lost, other = lost+len(f.Lost)+len(f.Vanished), other+len(f.Effects)
	}
	b.figure("%d jobs round %d services for %s, %d kills: lost %d, effects other than one %d; heaps grew by %.1f MiB at most (goal ≤ %d); rows of the inboxes %s; the rest settled in %.1fs",
		len(g.produced), ringSize, lasts, kills, lost, other, float64(grown)/(1<<20), heapLimit>>20, inboxes, took.Seconds())
}

// soak produces for so long, and kills a worker every while at one of its points.
func (g *ring) soak(lasts, every time.Duration) (kills int) {
	g.Helper()
	points := slices.Concat(chaos.SenderPoints(), chaos.ReceiverPoints())
	begun := time.Now()
	var victim *chaos.Worker
	for time.Since(begun) < lasts {
		side := g.services[kills%ringSize].to
		switch {
		case victim == nil && time.Since(begun) > time.Duration(kills+1)*every:
			config := side.config
			config.Relay.Hold, config.Relay.After = points[kills%len(points)], g.IntN(3)
			victim = side.startAs(1, config)
		case victim != nil && victim.Held():
			side.kill(1)
			side.workers = side.workers[:1]
			victim = nil
			kills++
		}
		due := int(time.Since(begun).Seconds() * ringRate)
		if n := due - len(g.produced); n > 0 {
			g.produce(n)
		}
		pause(50 * time.Millisecond)
	}
	if victim != nil {
		side := g.services[kills%ringSize].to
		side.kill(1)
		side.workers = side.workers[:1]
		kills++
	}
	if least := int(lasts/every) / 2; kills < least {
		g.Errorf("kills: got %d, want at least %d", kills, least)
	}
	return kills
}

// produce has so many jobs begin in the first service, which are for the others, and then for it.
func (g *ring) produce(n int) {
	g.Helper()
	r := g.services[0].to
	items := make([]outbox.Item, n)
	for i := range items {
		job := chaos.Job{N: len(r.jobs) + len(r.never), Takes: g.between(0, 4*time.Millisecond), Left: ringSize - 1}
		r.jobs, g.produced = append(r.jobs, job.N), append(g.produced, time.Now())
		items[i].Payload = chaos.Hop{Job: job}
	}
	testapp.OK(g, testapp.Second(r.producer.ProduceMany(r.ctx, r.db, items...)))
}

// settled tells whether all jobs have been all the way round.
func (g *ring) settled() bool {
	g.Helper()
	return !slices.ContainsFunc(g.services, func(s *relayed) bool {
		return s.to.count("SELECT count(*) FROM effects") < len(g.produced)*len(s.to.config.Tx) || !s.delivered() || !s.to.settled()
	})
}

// inboxes compares the inboxes with what they should have: everything that was produced, and so
// received, within the retention, and nothing that was done before the last time that old rows were
// removed.
func (g *ring) inboxes() (said string) {
	g.Helper()
	now := time.Now()
	least := 0
	for _, at := range g.produced {
		if now.Sub(at) < g.retention {
			least++
		}
	}
	const slack = 5 * time.Second
	removed := min(time.Minute, g.retention/10) // how often
	for _, s := range g.services {
		rows := s.to.count("SELECT count(*) FROM inbox_messages")
		most := s.to.count("SELECT count(*) FROM effects WHERE consumer = 'one' AND at > ?", now.Add(-g.retention-removed-slack))
		said += fmt.Sprintf("%d of %d to %d, ", rows, least, most)
		if rows < least || rows > most {
			g.Errorf("rows of the inbox of %s: got %d, want %d to %d, for a retention of %s", s.stream, rows, least, most, g.retention)
		}
	}
	return strings.TrimSuffix(said, ", ")
}

// grown is by how much the heap grew, at most, of the workers that lived all the time.
func (g *ring) grown() (most int) {
	g.Helper()
	for _, s := range g.services {
		sizes, err := s.to.workers[0].Heap()
		if err != nil || len(sizes) < 4 {
			g.Fatalf("heap of a worker: got %v and %v, want four sizes and more", sizes, err)
		}
		part := len(sizes) / 4
		grown := slices.Min(sizes[len(sizes)-part:]) - slices.Max(sizes[:part])
		if most = max(most, grown); grown > heapLimit {
			g.Errorf("heap of a worker of %s: got it from %d to %d bytes, want at most %d more", s.stream, slices.Max(sizes[:part]),
				slices.Min(sizes[len(sizes)-part:]), heapLimit)
		}
	}
	return most
}
