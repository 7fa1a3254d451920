package main

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/measure"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

const (
	nameSingle    = "ours-single"    // one message in a call
	nameLocal     = "ours-local"     // a bound in the process
	nameUnordered = "ours-unordered" // messages without keys
	nameForgets   = "ours-forgets"   // without bus.Keep

	batchSize = 100
	spinFor   = 20 * time.Microsecond
	flowRate  = 5000 // a second
	flowLimit = 5
)

// flowSteps are those of flow control, each beside ours without it.
func flowSteps() []step {
	return []step{
		{name: "ordered", quick: true, take: (*session).ordered, goals: orderedGoals()},
		{name: "per-key", quick: true, take: (*session).perKey, goals: []report.Goal{
			{
				Name: "per-key-10000", Measurement: "per-key-10000", Against: nameUnordered, AtLeast: 0.4,
			}, {Name: "fair-100", Measurement: "fair-100", Against: nameUnordered, AtLeast: 0.4}}},
		{
			name: "batch", quick: true, take: (*session).batch,
			goals: []report.Goal{{Name: "batch", Measurement: "batch", Against: nameSingle, AtLeast: 1.5}},
		},
		{
			name: "keep", quick: true, take: (*session).kept,
			goals: []report.Goal{{Name: "keep", Measurement: "keep", Against: nameForgets, AtLeast: 0.5}},
		},
		{name: "rate", quick: true, take: (*session).rate, goals: []report.Goal{{Name: "rate", Measurement: "rate", AtLeast: 0.95}}},
		{
			name: "limit", quick: true, take: (*session).limit,
			goals: []report.Goal{{Name: "limit", Measurement: "limit", Against: nameLocal, AtLeast: 0.9}},
		},
	}
}

// keys are how many keys the messages of the measurements have.
var keys = []int{1, 10, 10_000, 1_000_000}

func orderedGoals() (goals []report.Goal) {
	for _, n := range keys {
		goal := report.Goal{Name: orderedName(n), Measurement: orderedName(n), Against: nameUnordered, AtLeast: 0.6}
		if n == 1 {
			goal.AtLeast = 0.45
		}
		goals = append(goals, goal)
	}
	return goals
}

func orderedName(keys int) string { return fmt.Sprintf("ordered-%d", keys) }

// ordered measures consumers that run the messages of each key in order, beside one that
// has no order.
func (s *session) ordered(ctx context.Context) error {
	for _, n := range keys {
		err := s.variants(ctx, orderedName(n), measure.Drain{Messages: s.sized(200_000, 100_000)}, map[string]contender.Variant{
			contender.NameOurs: {Keys: n}, nameUnordered: {},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// perKey measures consumers that run so many messages of a key at once, or share among keys.
func (s *session) perKey(ctx context.Context) error {
	const manyKeys, fewKeys = 10_000, 100
	d := measure.Drain{Messages: s.sized(200_000, 100_000)}
	err := s.variants(ctx, "per-key-10000", d, map[string]contender.Variant{
		contender.NameOurs: {Keys: manyKeys, Keyed: bus.KeyConcurrency(3)}, nameUnordered: {},
	})
	if err != nil {
		return err
	}
	return s.variants(ctx, "fair-100", d, map[string]contender.Variant{
		contender.NameOurs: {Keys: fewKeys, Keyed: bus.Fair()}, nameUnordered: {},
	})
}

// batch measures consumers of which each call takes a while, however many messages it gets.
func (s *session) batch(ctx context.Context) error {
	return s.variants(ctx, "batch", measure.Drain{Messages: s.sized(100_000, 40_000)}, map[string]contender.Variant{
		contender.NameOurs: {Batch: batchSize, Spin: spinFor}, nameSingle: {Spin: spinFor},
	})
}

// kept measures a consumer that keeps what it has consumed, beside one that does not.
func (s *session) kept(ctx context.Context) error {
	return s.variants(ctx, "keep", measure.Drain{Messages: s.sized(200_000, 100_000)}, map[string]contender.Variant{
		contender.NameOurs: {Options: []bus.ConsumerOption{bus.Keep(time.Hour)}}, nameForgets: {},
	})
}

// limit measures a consumer that is bounded over all processes, beside one that is bounded in
// its own.
func (s *session) limit(ctx context.Context) error {
	return s.variants(ctx, "limit", measure.Drain{Messages: s.sized(10_000, 4_000), Handler: time.Millisecond}, map[string]contender.Variant{
		contender.NameOurs: {
			Options: []bus.ConsumerOption{bus.GlobalConcurrency(flowLimit)},
		}, nameLocal: {Processor: outbox.ProcessorConfig{Concurrency: flowLimit}},
	})
}

// rate measures how much of its rate a consumer reaches.
func (s *session) rate(ctx context.Context) error {
	const burst = 100
	v := contender.Variant{Options: []bus.ConsumerOption{bus.RateLimit(flowRate, time.Second, burst)}}
	for range s.options.fewRounds {
		messages := s.sized(4*flowRate, flowRate)
		found, err := s.bench.Drain(ctx, contender.Ours(contender.NameOurs, v), measure.Drain{Messages: messages + burst})
		if err != nil {
			return err
		}
		s.found("rate", contender.NameOurs, "of 5,000/s", found.Rate*float64(messages)/float64(messages+burst)/flowRate)
	}
	return nil
}

// variants measures drains by variants of ours.
func (s *session) variants(ctx context.Context, name string, d measure.Drain, variants map[string]contender.Variant) error {
	var names []string
	for variant := range variants {
		names = append(names, variant)
	}
	for round := range s.options.fewRounds {
		for _, variant := range rotated(names, round) {
			found, err := s.bench.Drain(ctx, contender.Ours(variant, variants[variant]), d)
			if err != nil {
				return err
			}
			s.found(name, variant, perSecond, found.Rate)
		}
	}
	return nil
}
