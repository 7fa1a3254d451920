//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 14, leader: of a cluster of three the leader of the stream is killed under load, stopped, or
// cut off from the others and, a second later, from its clients, again and again. Nothing is lost, nothing is done
// twice, no attempt is counted, and what is produced meanwhile is done soon after the next election.

// How long after the election. Clients of a server that is silent learn of it by their pings, after
// 15 s at the latest.
const (
	leaderLimit = 10 * time.Second
	silentLimit = 30 * time.Second
)

// fall is a way in which a leader loses its place, and comes back.
type fall struct {
	name       string
	limit      time.Duration
	down, back func(r *relayed, node *brokers.Process) error
}

func falls() []fall {
	start := func(_ *relayed, node *brokers.Process) error { return node.Start() }
	return []fall{
		{"killed", leaderLimit, func(_ *relayed, node *brokers.Process) error { return node.Kill() }, start},
		{"stopped", silentLimit, func(_ *relayed, node *brokers.Process) error { return node.Pause() }, start},
		{"cut off", silentLimit, func(r *relayed, node *brokers.Process) error {
			r.servers.Part(node)
			pause(time.Second) // meanwhile clients ask it for what it cannot promise
			return r.servers.CutNode(node)
		},
			func(r *relayed, node *brokers.Process) error { r.servers.Join(node); return nil }},
	}
}

func barRelayLeader(b *bar) {
	r := newBrokerOf(b, brokers.StartLinkedNATS(b, 3), chaos.RelayStream)
	r.sender(testdb.PostgresDSN(b))
	r.receiver(testdb.PostgresDSN(b))
	r.from.crew(2)
	r.to.crew(2)
	takes := func() time.Duration { return b.between(0, 4*time.Millisecond) }
	rounds, inFlight := pick(b, 1, 1, 4), 0
	var said []string
	for i := range rounds * len(falls()) {
		way := falls()[i%len(falls())]
		before := r.published()
		r.from.produce(2000, takes)
		b.eventually(time.Minute, "the relays publish", func() bool { return r.published() > before })
		pause(b.between(0, 50*time.Millisecond))
		fallen, gone, node := r.fellLeader(way)
		witness := r.from.plant(chaos.Job{})[0]
		elected := r.elected(node)
		b.eventually(time.Minute, "what is produced after the leader was "+way.name+" is done", func() bool { return r.done(witness) })
		healed := time.Since(elected)
		b.within("healed after the leader was "+way.name, healed, way.limit)
		said = append(said, fmt.Sprintf("%s %.1fs + %.1fs of %s", way.name, elected.Sub(fallen).Seconds(), healed.Seconds(), way.limit))
		if way.name != "killed" {
			gone = time.Now() // it may still take what it is sent, without an answer
		}
		inFlight += inDoubt(r.from.ledger(), fallen, gone)
		testapp.OK(b, way.back(r, node))
	}
	took := r.settle()
	f := r.judge(false)
	r.unharmed()
	twice := r.storedAll(len(r.from.jobs), inFlight)
	b.figure("%d leaders lost (until an election, and until it was healed: %s), %d messages of 2 consumers: %v; the broker has %d twice, %d were in flight; the rest settled in %.1fs",
		len(said), strings.Join(said, ", "), len(r.from.jobs), f.to, twice, inFlight, took.Seconds())
}

// killLeader kills the server that leads the stream.
func (r *relayed) killLeader() *brokers.Process {
	r.Helper()
	_, _, node := r.fellLeader(falls()[0])
	return node
}

// fellLeader has the server that leads the stream fall, and tells when that began and was done.
func (r *relayed) fellLeader(way fall) (fallen, gone time.Time, node *brokers.Process) {
	r.Helper()
	node = testapp.Must[*brokers.Process](r)(r.servers.Node(r.leader()))
	fallen = time.Now()
	testapp.OK(r, way.down(r, node))
	return fallen, time.Now(), node
}

// elected is when the stream has a leader that is not this one.
func (r *relayed) elected(not *brokers.Process) time.Time {
	r.Helper()
	r.eventually(time.Minute, "another leader is elected", func() bool {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 300*time.Millisecond)
		defer cancel()
		s, err := r.js.Stream(ctx, r.stream)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		node, err := r.servers.Node(s.CachedInfo().Cluster.Leader)
		return err == nil && node != not
	})
	return time.Now()
}

// leader is the name of the server that leads the stream, once the others follow it.
func (r *relayed) leader() (name string) {
	r.Helper()
	r.ask("find the leader", func(ctx context.Context) error {
		s, err := r.js.Stream(ctx, r.stream)
		if err != nil {
			return err
		}
		cluster := s.CachedInfo().Cluster
		if cluster == nil || cluster.Leader == "" {
			return errors.New("the stream has no leader")
		}
		for _, replica := range cluster.Replicas {
			if !replica.Current || replica.Offline {
				return errors.New("a replica is behind")
			}
		}
		name = cluster.Leader
		return nil
	})
	return name
}
