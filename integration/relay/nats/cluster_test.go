//go:build unix

package nats_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/relay/relaytest"
)

var clusters = flag.Bool("clusters", false, "run on clusters, too, as make relay-test does")

// TestConformanceOfACluster runs the suite on three servers and streams of three replicas. What
// cuts connections there is that the leader of the stream is killed.
func TestConformanceOfACluster(t *testing.T) {
	if !*clusters {
		return
	}
	servers := brokers.StartNATS(t, 3)
	relaytest.Run(t, func(t *testing.T) relaytest.Setup {
		at := newPlace(t, servers, 3)
		setup := at.setup(t)
		setup.Timeout += 2 * time.Second // of the connection, which tries one server that hangs after another
		setup.Patience = 45 * time.Second
		setup.Cut = func() error { return at.killLeader(t) }
		return setup
	})
}

// killLeader kills the server that leads the stream, and starts it again.
func (at *place) killLeader(t *testing.T) error {
	var name string
	retry(t, func(ctx context.Context) error {
		info, err := at.stream.Info(ctx)
		if err == nil {
			name = info.Cluster.Leader
		}
		return err
	})
	node, err := at.servers.Node(name)
	if err != nil {
		return err
	}
	if err := node.Kill(); err != nil {
		return err
	}
	return node.Start()
}
