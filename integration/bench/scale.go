package main

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/measure"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// scaleMessages is the backlog of a curve whose subject is not the backlog.
const scaleMessages = 100_000

// curve measures the figure at every x in every round and adds the medians to the
// report. From big on, one round has to do; 0 means that nothing is that big.
func (s *session) curve(c report.Curve, xs []int, big int, measure func(x int) (float64, error)) (medians map[int]float64, err error) {
	values := map[int][]float64{}
	for round := range s.options.rounds {
		for _, x := range rotated(xs, round) {
			if big > 0 && x >= big && len(values[x]) > 0 {
				continue
			}
			s.say("%s at %d, round %d of %d", c.Name, x, round+1, s.options.rounds)
			y, err := measure(x)
			if err != nil {
				return nil, fmt.Errorf("round %d at %d: %w", round+1, x, err)
			}
			s.say("%s at %d: %s %s", c.Name, x, report.Number(y), c.Y)
			values[x] = append(values[x], y)
		}
	}
	medians = map[int]float64{}
	for _, x := range xs {
		medians[x] = report.Median(values[x])
		c.Points = append(c.Points, report.Point{Series: contender.NameOurs, X: float64(x), Y: medians[x]})
	}
	s.report.Curves = append(s.report.Curves, c)
	return medians, nil
}

// drainRate measures a variant of ours.
func (s *session) drainRate(ctx context.Context, v contender.Variant, d measure.Drain) (float64, error) {
	found, err := s.bench.Drain(ctx, contender.Ours(contender.NameOurs, v), d)
	return found.Rate, err
}

func (s *session) backlog(ctx context.Context) error {
	c := report.Curve{Name: "backlog", Title: "Drain by size of the backlog", X: "messages", Y: perSecond, LogX: true}
	medians, err := s.curve(c, []int{10_000, 100_000, 1_000_000, 3_000_000}, 1_000_000, func(x int) (float64, error) {
		return s.drainRate(ctx, contender.Variant{}, measure.Drain{Messages: x})
	})
	if err == nil {
		s.found("backlog", contender.NameOurs, "× of 100k at 3M", medians[3_000_000]/medians[100_000])
	}
	return err
}

func (s *session) consumers(ctx context.Context) error {
	c := report.Curve{Name: "consumers", Title: "Drain of 100,000 rows by consumers of the message", X: "consumers", Y: "rows/s", LogX: true}
	medians, err := s.curve(c, []int{1, 10, 100}, 0, func(x int) (float64, error) {
		return s.drainRate(ctx, contender.Variant{Consumers: x}, measure.Drain{Messages: scaleMessages / x, Consumers: x})
	})
	if err == nil {
		s.found("consumers", contender.NameOurs, "× of 1 at 100", medians[100]/medians[1])
	}
	return err
}

const (
	committers = 64
	commitFor  = 5 * time.Second
)

// commits measures what waking other processes costs those who produce.
func (s *session) commits(ctx context.Context) error {
	variants := []contender.Contender{
		contender.Ours(contender.NameOurs, contender.Variant{Pool: committers}),
		contender.Ours(contender.NameOursNotify, contender.Variant{Pool: committers, Notify: true}),
	}
	for round := range s.options.rounds {
		for _, c := range rotated(variants, round) {
			rate, err := s.bench.Commits(ctx, c, committers, commitFor)
			if err != nil {
				return err
			}
			s.found("commits", c.Name, "commits/s", rate)
		}
	}
	return nil
}

func (s *session) loops(ctx context.Context) error {
	c := report.Curve{Name: "loops", Title: "Drain by claim loops", X: "claim loops", Y: perSecond}
	_, err := s.curve(c, []int{1, 2, 4, 8}, 0, func(x int) (float64, error) {
		return s.drainRate(ctx, contender.Variant{Processor: outbox.ProcessorConfig{Fetchers: x}}, measure.Drain{Messages: scaleMessages})
	})
	return err
}

func (s *session) processes(ctx context.Context) error {
	c := report.Curve{Name: "processes", Title: "Drain by processes", X: "processes", Y: perSecond}
	ours, err := contender.ByName(contender.NameOurs)
	if err != nil {
		return err
	}
	_, err = s.curve(c, []int{1, 2, 4}, 0, func(x int) (float64, error) {
		return s.bench.DrainProcesses(ctx, ours, scaleMessages, x)
	})
	return err
}

func (s *session) payload(ctx context.Context) error {
	c := report.Curve{Name: "payload", Title: "Drain by size of the payload", X: "bytes", Y: perSecond, LogX: true}
	_, err := s.curve(c, []int{100, 1 << 10, 8 << 10, 64 << 10}, 0, func(x int) (float64, error) {
		messages := min(scaleMessages, 200<<20/x) // 200 MB at most
		return s.drainRate(ctx, contender.Variant{}, measure.Drain{Messages: messages, Size: x})
	})
	return err
}

// largePayloads measures the drain of 64 MB of payloads of 64 KiB.
func (s *session) largePayloads(ctx context.Context) error {
	const size, messages = 64 << 10, 1000
	return s.rounds(
		s.options.rounds,
		[]entry{{contender.NameOurs, messages}, {contender.NameRaw, messages}},
		func(c contender.Contender, messages int) error {
			found, err := s.bench.Drain(ctx, c, measure.Drain{Messages: messages, Size: size})
			if err == nil {
				s.found("large-payloads", c.Name, "MB/s", found.Rate*size/1e6)
			}
			return err
		},
	)
}

// produceSizes are the payloads of which batches are produced, in KiB.
func produceSizes() []int { return []int{1, 8, 64} }

func produceGoals() (goals []report.Goal) {
	for _, size := range produceSizes() {
		name := fmt.Sprintf("produce-%dk", size)
		goals = append(goals, report.Goal{Name: name, Measurement: name, Against: contender.NameRiver, AtLeast: 1.1})
	}
	return goals
}

// produceLarge measures how fast batches of large payloads are produced.
func (s *session) produceLarge(ctx context.Context) error {
	for _, size := range produceSizes() {
		messages := max(min(s.sized(20_000, 5_000), s.sized(128<<10, 32<<10)/size), 500)
		err := s.rounds(
			s.options.rounds, []entry{{contender.NameOurs, messages}, {contender.NameRiver, messages}},
			func(c contender.Contender, messages int) error {
				found, err := s.bench.Drain(ctx, c, measure.Drain{Messages: messages, Size: size << 10})
				if err == nil {
					s.found(fmt.Sprintf("produce-%dk", size), c.Name, perSecond, found.ProduceRate)
				}
				return err
			},
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// handlerSeconds is about how long the drain of slow handlers takes.
const handlerSeconds = 4

func (s *session) handler(ctx context.Context) error {
	const concurrency = 64 // the default
	c := report.Curve{Name: "handler", Title: "Drain by time the handler takes", X: "milliseconds", Y: perSecond}
	delays := []int{0, 1, 5, 10, 50}
	for _, ms := range delays[1:] {
		c.Points = append(c.Points, report.Point{Series: "concurrency / time", X: float64(ms), Y: concurrency * 1000 / float64(ms)})
	}
	_, err := s.curve(c, delays, 0, func(x int) (float64, error) {
		messages := scaleMessages
		if x > 0 {
			messages = concurrency * 1000 / x * handlerSeconds
		}
		return s.drainRate(ctx, contender.Variant{}, measure.Drain{Messages: messages, Handler: time.Duration(x) * time.Millisecond})
	})
	return err
}

func (s *session) inFlight(ctx context.Context) error {
	const handler = 100 * time.Millisecond
	c := report.Curve{Name: "in-flight", Title: "Drain by Concurrency, with handlers of 100 ms", X: "Concurrency", Y: perSecond, LogX: true}
	counts := []int{64, 512, 4096, 8192}
	for _, n := range counts {
		c.Points = append(c.Points, report.Point{Series: "concurrency / time", X: float64(n), Y: float64(n) / handler.Seconds()})
	}
	_, err := s.curve(c, counts, 0, func(x int) (float64, error) {
		messages := min(scaleMessages, int(float64(x)/handler.Seconds()*handlerSeconds))
		return s.drainRate(
			ctx, contender.Variant{Processor: outbox.ProcessorConfig{Concurrency: x}},
			measure.Drain{Messages: messages, Handler: handler},
		)
	})
	return err
}

func (s *session) unregistered(ctx context.Context) error {
	const some = 10_000
	c := report.Curve{Name: "unregistered", Title: "Drain by unregistered messages", X: "unregistered messages", Y: perSecond}
	medians, err := s.curve(c, []int{0, some}, 0, func(x int) (float64, error) {
		return s.drainRate(ctx, contender.Variant{}, measure.Drain{Messages: scaleMessages, Unregistered: x})
	})
	if err == nil {
		s.found("unregistered", contender.NameOurs, "× of none at 10k", medians[some]/medians[0])
	}
	return err
}

// idleFor is how long an idle process is watched.
const idleFor = 30 * time.Second

// idleTenants is how many tenants an idle process has.
const idleTenants = 100

func (s *session) idle(ctx context.Context) error {
	for range s.options.rounds {
		for name, tenants := range map[string]int{"idle": 0, "idle-tenants": idleTenants} {
			rest, err := s.bench.Idle(ctx, idleFor, tenants)
			if err != nil {
				return err
			}
			s.found(name+"-statements", contender.NameOurs, "statements/s", rest.Statements)
			s.found(name+"-cpu", contender.NameOurs, "% of a core", rest.Client)
			s.found(name+"-server-cpu", contender.NameOurs, "% of a core", rest.Server)
		}
	}
	return nil
}

func (s *session) sqlite(ctx context.Context) error {
	for range s.options.rounds {
		found, err := s.bench.DrainSQLite(ctx, contender.Variant{}, measure.Drain{Messages: scaleMessages})
		if err != nil {
			return err
		}
		s.found("sqlite", contender.NameOurs, perSecond, found.Rate)
	}
	return nil
}
