package main

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
)

const (
	eventsPerSecond = "events/s"
	// nameUnnumbered is ours without numbering, which is compared with ours with it.
	nameUnnumbered = "ours-unnumbered"
)

// eventSteps are those of the event log.
func eventSteps() []step {
	return []step{
		{name: "append", take: (*session).appendEvents, goals: []report.Goal{
			{Name: "append-numbered", Measurement: "append-100-16", Against: nameUnnumbered, AtLeast: 0.8},
		}},
		{name: "number", take: (*session).number, goals: []report.Goal{
			{Name: "number", Measurement: "number", AtLeast: 20_000},
		}},
		{name: "project", take: (*session).project, goals: []report.Goal{
			{Name: "project-nothing", Measurement: "project-nothing", AtLeast: 30_000},
			{Name: "project-upsert", Measurement: "project-upsert", AtLeast: 5_000},
		}},
		{name: "event-latency", take: (*session).eventLatency, goals: []report.Goal{
			{Name: "event-latency-p99", Measurement: "event-latency-p99", AtMost: 50},
			{Name: "event-latency-idle-p99", Measurement: "event-latency-idle-p99", AtMost: 50},
		}},
	}
}

// appendEvents measures appends of 1 and 100 events by 1 and 16 writers, with and
// without numbering beside them.
func (s *session) appendEvents(ctx context.Context) error {
	long := time.Duration(s.sized(5, 2)) * time.Second
	for round := range s.options.rounds {
		for _, perCall := range []int{1, 100} {
			for _, writers := range []int{1, 16} {
				for _, name := range rotated([]string{contender.NameOurs, nameUnnumbered}, round) {
					rate, err := s.bench.Append(ctx, perCall, writers, name == contender.NameOurs, long)
					if err != nil {
						return err
					}
					s.found(fmt.Sprintf("append-%d-%d", perCall, writers), name, eventsPerSecond, rate)
				}
			}
		}
	}
	return nil
}

// number measures the numbering of a backlog.
func (s *session) number(ctx context.Context) error {
	for range s.options.rounds {
		rate, err := s.bench.Number(ctx, s.sized(200_000, 50_000))
		if err != nil {
			return err
		}
		s.found("number", contender.NameOurs, eventsPerSecond, rate)
	}
	return nil
}

// project measures projections that do nothing, and one upsert for each event.
func (s *session) project(ctx context.Context) error {
	for range s.options.rounds {
		nothing, err := s.bench.Project(ctx, s.sized(200_000, 50_000), false)
		if err != nil {
			return err
		}
		upsert, err := s.bench.Project(ctx, s.sized(50_000, 10_000), true)
		if err != nil {
			return err
		}
		s.found("project-nothing", contender.NameOurs, eventsPerSecond, nothing)
		s.found("project-upsert", contender.NameOurs, eventsPerSecond, upsert)
	}
	return nil
}

// eventLatency measures from append to projection, also beside an idle writer,
// for ten seconds.
func (s *session) eventLatency(ctx context.Context) error {
	for range s.options.fewRounds {
		for name, idle := range map[string]bool{"event-latency": false, "event-latency-idle": true} {
			found, err := s.bench.EventLatency(ctx, s.sized(10_000, 3_000), idle)
			if err != nil {
				return err
			}
			s.found(name+"-p50", contender.NameOurs, "ms", report.Percentile(found, 50))
			s.found(name+"-p99", contender.NameOurs, "ms", report.Percentile(found, 99))
		}
	}
	return nil
}
