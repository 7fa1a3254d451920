package main

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
)

// loadSteps measure what messages cost an application under a steady load, over its own
// transactions.
func loadSteps() []step {
	overhead := func(name string, most float64) report.Goal {
		return report.Goal{Name: name + "-overhead", Measurement: name + "-overhead", Against: contender.NameRiver, AtMost: most}
	}
	return []step{
		{
			name: "real-load-100", quick: true, take: func(s *session, ctx context.Context) error { return s.realLoad(ctx, 100) },
			goals: []report.Goal{overhead("real-load-100", 0.4)},
		},
		{
			name: "real-load-1000", quick: true, take: func(s *session, ctx context.Context) error { return s.realLoad(ctx, 1000) },
			goals: []report.Goal{
				overhead("real-load-1000", 0.5),
				{Name: "real-load-1000-start-p50", Measurement: "real-load-1000-start-p50", AtMost: 0.9},
				{Name: "real-load-1000-start-p99", Measurement: "real-load-1000-start-p99", AtMost: 3},
				{Name: "real-load-1000-commits", Measurement: "real-load-1000-commits", AtMost: 0.1},
				{Name: "real-load-1000-wal", Measurement: "real-load-1000-wal", AtMost: 650},
			},
		},
		{
			name: "real-load-2500", quick: true, take: func(s *session, ctx context.Context) error { return s.realLoad(ctx, 2500) },
			goals: []report.Goal{overhead("real-load-2500", 0.35), {Name: "real-load-2500-rate", Measurement: "real-load-2500-rate", AtLeast: 2450}},
		},
	}
}

// realLoad measures applications in turns. What it finds of each but the bare one is over that of
// the same round.
func (s *session) realLoad(ctx context.Context, rate int) error {
	length := time.Duration(s.sized(15, 4)) * time.Second
	apps := []string{contender.NameOurs, contender.NameRiver}
	if !s.options.quick {
		apps = append(apps, contender.NameRiverDefaults)
	}
	for round := range s.options.fewRounds {
		bare, err := s.bench.RealLoad(ctx, contender.NameBare, rate, length)
		if err != nil {
			return fmt.Errorf("%s: %w", contender.NameBare, err)
		}
		per := func(d time.Duration, messages int) float64 { return float64(d.Microseconds()) / float64(messages) }
		s.found(s.step+"-client", contender.NameBare, "µs/message", per(bare.Cost.Client, bare.Messages))
		s.found(s.step+"-server", contender.NameBare, "µs/message", per(bare.Cost.Server, bare.Messages))
		for _, app := range rotated(apps, round) {
			found, err := s.bench.RealLoad(ctx, app, rate, length)
			if err != nil {
				return fmt.Errorf("%s: %w", app, err)
			}
			client := per(found.Cost.Client, found.Messages) - per(bare.Cost.Client, bare.Messages)
			server := per(found.Cost.Server, found.Messages) - per(bare.Cost.Server, bare.Messages)
			s.found(s.step+"-overhead", app, "µs/message", client+server)
			s.found(s.step+"-client", app, "µs/message over bare", client)
			s.found(s.step+"-server", app, "µs/message over bare", server)
			s.found(s.step+"-start-p50", app, "ms", report.Percentile(found.Starts, 50))
			s.found(s.step+"-start-p99", app, "ms", report.Percentile(found.Starts, 99))
			s.found(s.step+"-commits", app, "a message over bare", found.Commits-bare.Commits)
			s.found(s.step+"-wal", app, "bytes over bare", found.WAL-bare.WAL)
			s.found(s.step+"-rate", app, perSecond, found.Rate)
			s.others = max(s.others, found.Cost.Busy())
		}
	}
	return nil
}
