package main

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/measure"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
)

const perSecond = "messages/s"

// drain measures a backlog: how fast it is produced, how fast it is consumed,
// and what both write to the log.
func (s *session) drain(ctx context.Context) error {
	entries := []entry{
		{contender.NameOurs, s.sized(100_000, 60_000)},
		{contender.NameRiver, s.sized(100_000, 20_000)},
		{contender.NameRaw, s.sized(100_000, 60_000)},
	}
	if !s.options.quick {
		entries = append(entries, entry{contender.NameRiverDefaults, 5_000}, entry{contender.NameWatermill, 100_000})
	}
	return s.rounds(s.options.rounds, entries, func(c contender.Contender, messages int) error {
		found, err := s.bench.Drain(ctx, c, measure.Drain{Messages: messages})
		if err != nil {
			return err
		}
		s.found("drain", c.Name, perSecond, found.Rate)
		s.explain("drain", c.Name, found.Cost, messages)
		if c.Name != contender.NameRaw && c.Name != contender.NameRiverDefaults { // those produce as the others do
			s.found("produce", c.Name, perSecond, found.ProduceRate)
			s.found("wal", c.Name, "bytes", found.WAL)
		}
		return nil
	})
}

// transactional measures handlers that insert one row in the transaction that
// completes the message, each in a transaction of its own and in groups.
func (s *session) transactional(ctx context.Context) error {
	entries := []entry{
		{contender.NameOurs, s.sized(20_000, 2_500)},
		{contender.NameOursGrouped, s.sized(20_000, 10_000)},
		{contender.NameRiver, s.sized(20_000, 2_500)},
	}
	if !s.options.quick {
		entries = append(entries, entry{contender.NameWatermill, 20_000})
	}
	return s.rounds(s.options.rounds, entries, func(c contender.Contender, messages int) error {
		found, err := s.bench.Drain(ctx, c, measure.Drain{Messages: messages, Transactional: true})
		if err != nil {
			return err
		}
		s.found("transactional", c.Name, perSecond, found.Rate)
		s.explain("transactional", c.Name, found.Cost, messages)
		return nil
	})
}

// latency measures from commit to handler in one process.
func (s *session) latency(ctx context.Context) error {
	return s.latencies(ctx, "latency", contender.NameOurs, false)
}

// latencyAcross measures from commit to handler in another process. Ours wakes
// that process; without, which is the default, it finds a message when it polls.
func (s *session) latencyAcross(ctx context.Context) error {
	return s.latencies(ctx, "latency-across", contender.NameOursNotify, true)
}

func (s *session) latencies(ctx context.Context, name, ours string, across bool) error {
	entries := []entry{{ours, s.sized(2_000, 400)}}
	if !s.options.quick {
		if ours != contender.NameOurs {
			entries = append(entries, entry{contender.NameOurs, 2_000})
		}
		entries = append(
			entries, entry{contender.NameRiver, 2_000}, entry{contender.NameRiverDefaults, 2_000}, entry{contender.NameWatermill, 2_000},
		)
	}
	return s.rounds(s.options.fewRounds, entries, func(c contender.Contender, messages int) error {
		found, err := s.bench.Latency(ctx, c, messages, across)
		if err != nil {
			return err
		}
		s.found(name+"-p50", c.Name, "ms", report.Percentile(found, 50))
		s.found(name+"-p99", c.Name, "ms", report.Percentile(found, 99))
		return nil
	})
}

const (
	// nameUnpinned is ours without a pinned snapshot, which is compared with ours
	// with one.
	nameUnpinned = "ours-unpinned"

	pinFor = time.Minute
)

// pinned measures a backlog while a snapshot keeps dead rows from being removed.
// It stays open for a minute, or until all is consumed. The full run shows how the
// rate develops, too.
func (s *session) pinned(ctx context.Context) error {
	messages := s.sized(1_000_000, 80_000)
	tenths := map[string][][]float64{}
	names := []string{contender.NameOurs, nameUnpinned}
	for round := range s.options.fewRounds {
		for _, name := range rotated(names, round) {
			d := measure.Drain{Messages: messages}
			if name == contender.NameOurs {
				d.Pin = pinFor
			}
			found, err := s.bench.Drain(ctx, contender.Ours(name, contender.Variant{}), d)
			if err != nil {
				return err
			}
			s.found("pinned", name, perSecond, found.Rate)
			tenths[name] = append(tenths[name], found.Tenths)
		}
	}
	if s.options.quick {
		return nil
	}
	c := report.Curve{Name: "pinned", Title: "A backlog of 1 M while a snapshot is pinned", X: "consumed (%)", Y: perSecond}
	for i, name := range names {
		series := []string{"pinned", "unpinned"}[i]
		for tenth := range 10 {
			var values []float64
			for _, rates := range tenths[name] {
				values = append(values, rates[tenth])
			}
			c.Points = append(c.Points, report.Point{Series: series, X: float64(10 * (tenth + 1)), Y: report.Median(values)})
		}
	}
	s.report.Curves = append(s.report.Curves, c)
	return nil
}

// chain measures what the default chain adds to a message.
func (s *session) chain(context.Context) error {
	for range s.options.fewRounds {
		microseconds, allocations, err := measure.Chain()
		if err != nil {
			return err
		}
		s.found("chain-time", contender.NameOurs, "µs", microseconds)
		s.found("chain-allocations", contender.NameOurs, "allocations", allocations)
	}
	return nil
}
