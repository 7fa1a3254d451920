//go:build unix

package chaos_test

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Bar 14, move: a consumer moves to another service in a rolling deploy, under load, while
// instances of either version and receivers are killed. Each job is done once, here or there, also
// what an instance had forwarded when it was killed beside an old one, and nobody else there hears
// of it.

const (
	moving    = "moving"
	unrelated = "unrelated" // a consumer of the same jobs in the other service

	settling = 100 * time.Millisecond // for what is settled too early
)

// move is the deploy: instances in so many places, of which those that forward are new.
type move struct {
	*relayed
	before, after chaos.WorkerConfig
	deployed      int                 // places that have the new version
	producers     [2]*outbox.Producer // of either version
}

func newMove(b *bar) *move {
	b.Helper()
	m := &move{relayed: newBroker(b, 1, chaos.RelayStream)}
	m.from = newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Lease: 2 * time.Second, Tx: []string{moving}})
	m.to = newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{
		Lease: 2 * time.Second, Tx: []string{moving}, Plain: []string{unrelated}, Relay: chaos.RelayConfig{Server: m.servers.URL(),
			Receives: true},
	})
	m.before, m.after = m.from.config, m.from.config
	m.after.Tx, m.after.Relay = nil, chaos.RelayConfig{Server: m.servers.URL(), Publishes: publishes, Moves: moving}
	registry, err := chaos.NewRegistry(nil, m.after, m.after.Relay.Declared()...)
	if err != nil {
		b.Fatal(err)
	}
	m.producers[0] = m.from.producer
	if m.producers[1], err = outbox.NewProducer(registry, outbox.ProducerConfig{}); err != nil {
		b.Fatal(err)
	}
	return m
}

func barRelayMove(b *bar) {
	const places = 3
	m := newMove(b)
	for i := range places {
		m.from.startAs(i, m.before)
	}
	m.to.start(0)
	m.to.start(1)
	jobs, times := pick(b, 1500, 10_000, 40_000), pick(b, 4, 12, 30)
	for i := range times {
		if i >= times*(m.deployed+1)/(places+1) {
			m.deploy()
		}
		m.produce(jobs / times)
		m.killOne(i)
	}
	last := time.Now()
	m.settle()
	took := time.Since(last)
	m.from.stopAll()
	m.to.stopAll()
	here, there, doubtful := m.judge()
	b.figure("%d jobs, %d kills here and %d there: done here %d, there %d; lost 0, effects other than one 0, also of the %d that the broker may have had when their instance was killed; others there were told of 0; the rest settled in %.1fs",
		len(m.from.jobs), len(m.from.killed), len(m.to.killed), here, there, doubtful, took.Seconds())
}

// produce produces half of the jobs with each version of the program.
func (m *move) produce(n int) {
	m.Helper()
	for _, p := range m.producers {
		m.from.producer = p
		m.from.produce(n/2, func() time.Duration { return m.between(0, 10*time.Millisecond) })
	}
}

// deploy replaces one old instance.
func (m *move) deploy() {
	m.Helper()
	if _, _, err := m.from.workers[m.deployed].Stop(); err != nil {
		m.Error(err)
	}
	m.from.startAs(m.deployed, m.after)
	m.deployed++
}

// killOne kills a receiver at one of its points, an instance that forwards at one of its points,
// or one that is at work.
func (m *move) killOne(i int) {
	m.Helper()
	switch {
	case i%3 == 0 && m.deployed > 0:
		m.to.killAt(m.to.config, chaos.ReceiverPoints()[i/3%3], settling, m.feed)
	case i%3 == 1 && m.deployed > 0:
		m.from.killAt(m.after, chaos.SenderPoints()[i/3%2], settling, m.feed)
	default:
		victim := m.from.atWork()
		m.from.kill(victim)
		if victim < m.deployed {
			m.from.startAs(victim, m.after)
		} else {
			m.from.startAs(victim, m.before)
		}
	}
}

// feed has something for either version to do.
func (m *move) feed() {
	if m.from.pending() < 200 {
		m.from.producer = m.producers[0] // what waits under the old name is for either version
		m.from.produce(20, func() time.Duration { return m.between(0, 10*time.Millisecond) })
	}
}

// judge tells how many jobs were done in either service, and how many were doubtful.
func (m *move) judge() (here, there, doubtful int) {
	m.Helper()
	m.from.onlyLogged()
	m.to.onlyLogged()
	a, c := m.from.evidence(), m.to.evidence()
	both := chaos.Evidence{
		Consumers: []string{moving}, Tx: []string{moving}, Jobs: m.from.jobs, Never: m.from.never, Lease: m.from.config.Lease,
		Ledger: slices.Concat(a.Ledger, c.Ledger), Pending: slices.Concat(a.Pending, c.Pending), Poisoned: slices.Concat(a.Poisoned, c.Poisoned),
		Effects: make(map[chaos.Run]int), Claims: a.Claims + c.Claims,
	}
	both.Ledger = slices.DeleteFunc(both.Ledger, func(e chaos.Event) bool { return e.Consumer == publishes })
	slices.SortStableFunc(both.Ledger, func(a, b chaos.Event) int { return a.At.Compare(b.At) })
	for _, effects := range []map[chaos.Run]int{a.Effects, c.Effects} {
		for run, n := range effects {
			both.Effects[run] += n
		}
	}
	f := chaos.Judge(both)
	f.Unclaimed = nil // the histories of claims are those of two databases
	if violations := f.Violations(); len(violations) > 0 {
		m.Errorf("violations:\n%s", violations)
	}
	if len(a.Effects) == 0 || len(c.Effects) == 0 {
		m.Errorf("jobs done: got %d here and %d there, want some on either side", len(a.Effects), len(c.Effects))
	}
	return len(a.Effects), len(c.Effects), m.doubtful(a.Ledger)
}

// doubtful counts the jobs that the broker may have had, although nobody knew, when an instance that
// forwards was killed.
func (m *move) doubtful(ledger chaos.Ledger) int {
	open := make(map[string]map[int]bool) // of each worker
	for _, e := range ledger {
		_, killed := m.from.killed[e.Worker]
		switch {
		case e.Consumer != publishes || !killed:
		case e.Kind != chaos.Started:
			delete(open[e.Worker], e.Job)
		case open[e.Worker] == nil:
			open[e.Worker] = map[int]bool{e.Job: true}
		default:
			open[e.Worker][e.Job] = true
		}
	}
	n := 0
	for _, of := range open {
		n += len(of)
	}
	return n
}
