package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/measure"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
)

const (
	nameDrain   = "ours-drain"   // ours without a broker: consumers that count
	nameShards  = "ours-4"       // four shards of the log
	namePublish = "publish-only" // a client of JetStream that has all in memory

	relayMessages = 100_000
	logEvents     = 200_000
	manyShards    = 4
	clusterSize   = 3
)

// relaySteps are those of relays to brokers, which each of them starts, and of what comes from
// there.
func relaySteps() []step {
	return []step{
		{name: "relay", take: (*session).relay, goals: []report.Goal{
			{Name: "relay", Measurement: "relay", AtLeast: 20_000},
			{Name: "relay-forwarder", Measurement: "relay", Against: contender.NameForwarder, AtLeast: 4},
			{Name: "relay-drain", Measurement: "relay", Against: nameDrain, AtLeast: 0.45},
		}},
		{name: "relay-r3", take: (*session).relayCluster, goals: []report.Goal{{Name: "relay-r3", Measurement: "relay-r3", AtLeast: 12_000}}},
		{
			name: "relay-rabbitmq", take: (*session).relayRabbitMQ,
			goals: []report.Goal{{Name: "relay-rabbitmq", Measurement: "relay-rabbitmq", AtLeast: 4_000}},
		},
		{name: "inbox", take: (*session).inbox, goals: []report.Goal{
			{Name: "inbox-new", Measurement: "inbox-new", AtLeast: 15_000},
			{Name: "inbox-duplicates", Measurement: "inbox-duplicates", AtLeast: 40_000},
		}},
		{name: "relay-latency", take: (*session).relayLatency, goals: []report.Goal{
			{Name: "relay-latency-p50", Measurement: "relay-latency-p50", AtMost: 10},
			{Name: "relay-latency-p99", Measurement: "relay-latency-p99", AtMost: 35},
		}},
		{name: "log-relay", take: (*session).logRelay, goals: []report.Goal{{Name: "log-relay", Measurement: "log-relay", AtLeast: 25_000}}},
	}
}

// relay measures a backlog on its way to a single server, beside the same one drained by
// consumers that count, beside the Forwarder, and beside a client without a database.
func (s *session) relay(ctx context.Context) error {
	return s.withJetStream(1, func(js *broker.JetStream) error {
		names := []string{contender.NameOurs, nameDrain, contender.NameForwarder, namePublish}
		for round := range s.options.rounds {
			for _, name := range rotated(names, round) {
				s.say("relay of %s, round %d of %d", name, round+1, s.options.rounds)
				if err := s.relayOf(ctx, js, name); err != nil {
					return fmt.Errorf("round %d of %s: %w", round+1, name, err)
				}
			}
		}
		return nil
	})
}

func (s *session) relayOf(ctx context.Context, js *broker.JetStream, name string) error {
	const slowMessages = 20_000
	switch name {
	case contender.NameOurs:
		return s.relayed(ctx, "relay", name, oursRelay(), js, relayMessages)
	case contender.NameForwarder:
		return s.relayed(ctx, "relay", name, contender.Forwarder(), js, slowMessages)
	case nameDrain:
		found, err := s.bench.Drain(
			ctx, contender.Ours(name, contender.Variant{}), measure.Drain{Messages: relayMessages, Size: measure.RelaySize},
		)
		if err != nil {
			return err
		}
		s.found("relay", name, perSecond, found.Rate)
		s.explain("relay", name, found.Cost, relayMessages)
		return nil
	}
	rate, err := s.bench.Publish(ctx, js, relayMessages)
	if err == nil {
		s.found("relay", name, perSecond, rate)
	}
	return err
}

// oursRelay is ours with the default configuration, in one process.
func oursRelay() contender.Contender {
	return contender.Ours(contender.NameOurs, contender.Variant{Relay: true})
}

// relayed measures a contender, and keeps what it found.
func (s *session) relayed(ctx context.Context, measurement, name string, c contender.Contender, to measure.Broker, messages int) error {
	found, err := s.bench.Relay(ctx, c, to, messages)
	if err == nil {
		s.keep(measurement, name, perSecond, found, messages)
	}
	return err
}

func (s *session) keep(measurement, name, unit string, found measure.Relayed, messages int) {
	s.found(measurement, name, unit, found.Rate)
	s.explain(measurement, name, found.Cost, messages)
}

// relayCluster measures a backlog on its way to a cluster of three servers.
func (s *session) relayCluster(ctx context.Context) error {
	return s.withJetStream(clusterSize, func(js *broker.JetStream) error {
		for range s.options.rounds {
			if err := s.relayed(ctx, "relay-r3", contender.NameOurs, oursRelay(), js, relayMessages); err != nil {
				return err
			}
		}
		return nil
	})
}

// relayRabbitMQ measures a backlog on its way to a quorum queue of three nodes.
func (s *session) relayRabbitMQ(ctx context.Context) (err error) {
	mq, err := broker.StartRabbitMQ(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mq.Close()) }()
	if n := mq.Nodes(); n != clusterSize {
		return &broker.MissingError{
			Broker: "cluster of RabbitMQ", Err: fmt.Errorf("%s names %d nodes, want %d", broker.RabbitVariable, n, clusterSize),
		}
	}
	for range s.options.rounds {
		if err := s.relayed(ctx, "relay-rabbitmq", contender.NameOurs, oursRelay(), mq, 50_000); err != nil {
			return err
		}
	}
	return nil
}

// inbox measures what is received, and what is received again.
func (s *session) inbox(ctx context.Context) error {
	return s.withJetStream(1, func(js *broker.JetStream) error {
		for range s.options.rounds {
			fresh, duplicates, err := s.bench.Inbox(ctx, js, relayMessages)
			if err != nil {
				return err
			}
			s.keep("inbox-new", contender.NameOurs, "records/s", fresh, relayMessages)
			s.keep("inbox-duplicates", contender.NameOurs, "records/s", duplicates, relayMessages)
		}
		return nil
	})
}

// relayLatency measures from a commit in one service to the handler in another.
func (s *session) relayLatency(ctx context.Context) error {
	return s.withJetStream(1, func(js *broker.JetStream) error {
		for range s.options.rounds {
			found, err := s.bench.Services(ctx, js, 10_000)
			if err != nil {
				return err
			}
			s.found("relay-latency-p50", contender.NameOurs, "ms", report.Percentile(found, 50))
			s.found("relay-latency-p99", contender.NameOurs, "ms", report.Percentile(found, 99))
		}
		return nil
	})
}

// logRelay measures the event log on its way to a stream, in its order, and in parts.
func (s *session) logRelay(ctx context.Context) error {
	shards := map[string]int{contender.NameOurs: 1, nameShards: manyShards}
	return s.withJetStream(1, func(js *broker.JetStream) error {
		for round := range s.options.rounds {
			for _, name := range rotated([]string{contender.NameOurs, nameShards}, round) {
				found, err := s.bench.LogRelay(ctx, js, logEvents, shards[name])
				if err != nil {
					return fmt.Errorf("round %d of %s: %w", round+1, name, err)
				}
				s.keep("log-relay", name, eventsPerSecond, found, logEvents)
			}
		}
		return nil
	})
}

// withJetStream runs servers for the length of use.
func (s *session) withJetStream(nodes int, use func(js *broker.JetStream) error) error {
	js, err := broker.StartJetStream(nodes)
	if err != nil {
		return err
	}
	return errors.Join(use(js), js.Close())
}
