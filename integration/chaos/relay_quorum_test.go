//go:build unix

package chaos_test

import (
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 14, quorum: the leader of a quorum queue of RabbitMQ on three nodes, which
// scripts/with-rabbitmq.sh has started, is killed or stopped under load, again and again. Nothing is
// lost, nothing is done twice, no attempt is counted, and what is produced meanwhile is done.

// How long it may take until what is produced is done. The others give a node that says nothing any
// more up after Erlang's net_ticktime, which is a minute or a quarter more.
const (
	killedLimit  = 30 * time.Second
	stoppedLimit = 2 * time.Minute
)

func barRelayQuorum(b *bar) {
	nodes := brokers.FindRabbitMQ(b)
	if len(nodes.URLs) < 3 {
		b.Fatalf("RabbitMQ has %d nodes: run this with scripts/with-rabbitmq.sh 3", len(nodes.URLs))
	}
	// A queue of that name that was deleted a moment ago may keep the new one from starting on a node.
	b.eventually(2*time.Minute, "the queue runs on all nodes", func() bool {
		declareQuorum(b, nodes)
		pause(time.Second)
		online, err := nodes.Online(chaos.RelayStream)
		return err == nil && online == len(nodes.URLs)
	})
	r := &relayed{bar: b}
	config := chaos.RelayConfig{Rabbits: nodes.URLs, Publishes: publishes}
	r.from = newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Lease: 2 * time.Second, Relay: config})
	r.to = newRun(b, testdb.PostgresDSN(b), receives(chaos.RelayConfig{Rabbits: nodes.URLs, Receives: true}))
	r.from.crew(2)
	r.to.crew(2)
	ways := []struct {
		name  string
		fell  func(i int) error
		limit time.Duration
	}{{"killed", nodes.KillNode, killedLimit}, {"stopped", nodes.PauseNode, stoppedLimit}}
	var said []string
	for i := range pick(b, 2, 2, 8) {
		way := ways[i%len(ways)]
		first := r.from.plant(chaos.Job{})[0]
		r.from.produce(2000, func() time.Duration { return b.between(0, 4*time.Millisecond) })
		b.eventually(time.Minute, "some are done", func() bool { return r.done(first) })
		leader := testapp.Must[int](b)(nodes.Leader(chaos.RelayStream))
		r.from.produce(2000, func() time.Duration { return b.between(0, 4*time.Millisecond) })
		fell := time.Now()
		testapp.OK(b, way.fell(leader))
		witness := r.from.plant(chaos.Job{})[0]
		b.eventually(3*time.Minute, "what is produced after the leader was "+way.name+" is done", func() bool { return r.done(witness) })
		healed := time.Since(fell)
		b.within("healed after the leader was "+way.name, healed, way.limit)
		said = append(said, fmt.Sprintf("%s %.1fs of %s", way.name, healed.Seconds(), way.limit))
		testapp.OK(b, nodes.Start())
	}
	took := b.eventually(4*time.Minute, "everything is settled", func() bool {
		return r.from.settled() && r.to.count("SELECT count(*) FROM effects") >= len(r.from.jobs)*len(r.to.config.Tx) && r.to.settled()
	})
	f := r.judge(false)
	r.unharmed()
	b.figure("%d leaders of a quorum queue lost (until it was healed: %s), %d messages of 2 consumers: %v; the rest settled in %.1fs",
		len(said), strings.Join(said, ", "), len(r.from.jobs), f.to, took.Seconds())
}

// declareQuorum makes the queue anew.
func declareQuorum(b *bar, nodes *brokers.RabbitMQ) {
	b.Helper()
	conn := testapp.Must[*amqp.Connection](b)(amqp.Dial(nodes.URLs[0]))
	defer conn.Close()
	channel := testapp.Must[*amqp.Channel](b)(conn.Channel())
	testapp.OK(b, testapp.Second(channel.QueueDelete(chaos.RelayStream, false, false, false)))
	testapp.OK(b, testapp.Second(channel.QueueDeclare(chaos.RelayStream, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})))
}
