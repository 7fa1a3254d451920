//go:build unix

package nats_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"

	"github.com/asyncmonolith/asyncmonolith-go/broker/brokertest"
	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

var clusters = flag.Bool("clusters", false, "run on clusters, too, as make relay-test does")

// TestConformanceOfACluster runs the suite on three servers and streams of three replicas. What
// cuts connections there is that the leader of the stream is killed.
func TestConformanceOfACluster(t *testing.T) {
	if !*clusters {
		return
	}
	servers := brokers.StartNATS(t, 3)
	brokertest.Run(t, func(t *testing.T) brokertest.Setup {
		at := newPlace(t, servers, 3)
		setup := at.setup(t)
		setup.Timeout += 2 * time.Second // of the connection, which tries one server that hangs after another
		setup.MaxWait = 45 * time.Second
		setup.Disconnect = func() error { return at.killLeader(t) }
		return setup
	})
}

// TestAnElectionIsNoMissingStream publishes while the leader of a stream is killed: nobody takes the
// records then, and yet the stream is there. That one does not exist is said before and after.
func TestAnElectionIsNoMissingStream(t *testing.T) {
	if !*clusters {
		return
	}
	servers := brokers.StartNATS(t, 3)
	for round := range 3 {
		at := newPlace(t, servers, 3)
		leader := at.leader(t)
		// The client stays on another server, so that it is told that nobody takes its records.
		var urls []string
		for i, url := range strings.Split(servers.URL(), ",") {
			if servers.Nodes[i] != leader {
				urls = append(urls, url)
			}
		}
		nc := connectTo(t, strings.Join(urls, ","), nats.DontRandomize())
		publisher := newPublisher(t, nc, timeout)
		appender, err := amnats.NewAppender(nc, amnats.AppenderConfig{Stream: at.name, Prefix: at.name + ".log", Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		elected := 0
		publish := func() (whole bool) {
			errs := publisher.Publish(t.Context(), []broker.Record{
				{Destination: at.name + ".placed", ID: rand.Text()}, {Destination: "nowhere." + at.name}, {Destination: at.name + ".placed",
					ID: rand.Text()},
			})
			for i, err := range errs {
				isMissing, missing, away := i == 1, errors.Is(err, broker.ErrNoDestination), errors.Is(err, broker.ErrUnavailable)
				if err == nil && isMissing || err != nil && missing == away || missing && !isMissing {
					t.Fatalf("round %d, record %d: got %v, want ErrNoDestination of what is missing alone", round, i, err)
				}
				if away && !isMissing {
					elected++
				}
			}
			return errs[0] == nil && errs[2] == nil && errors.Is(errs[1], broker.ErrNoDestination)
		}
		within(t, time.Minute, "all is well before", publish)
		testapp.OK(t, leader.Kill())
		if publish() {
			t.Errorf("round %d: got all published right after the leader was killed", round)
		}
		if _, err := appender.Append(t.Context(), 0, 0, numbered(1, 3)); !errors.Is(err, broker.ErrUnavailable) ||
			errors.Is(err, broker.ErrNoDestination) {
			t.Errorf("round %d: append: got %v, want ErrUnavailable", round, err)
		}
		within(t, time.Minute, "all is well after", publish)
		t.Logf("round %d: %d records came during the election", round, elected)
		testapp.OK(t, leader.Start())
	}
}

// within does something again and again, until it is done.
func within(t *testing.T, d time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s: %s", d, what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// leader is the server that leads the stream.
func (at *place) leader(t *testing.T) *brokers.Process {
	var name string
	retry(t, func(ctx context.Context) error {
		info, err := at.stream.Info(ctx)
		if err == nil {
			name = info.Cluster.Leader
		}
		return err
	})
	node := testapp.Must[*brokers.Process](t)(at.servers.Node(name))
	return node
}

// killLeader kills the server that leads the stream, and starts it again.
func (at *place) killLeader(t *testing.T) error {
	node := at.leader(t)
	if err := node.Kill(); err != nil {
		return err
	}
	return node.Start()
}
