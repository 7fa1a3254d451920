package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/measure"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
)

const (
	// nameSilent is ours without reports to operators, and nameUnseen ours at which nobody looks.
	nameSilent = "ours-silent"
	nameUnseen = "ours-unseen"

	viewers = 5
	// pairs is how often as many rounds there are of these as of others: it is about a hundredth.
	pairs = 3
)

// peopleSteps are those of what people see.
func peopleSteps() []step {
	return []step{
		{
			name: "reports", take: (*session).reports,
			goals: []report.Goal{{Name: "reports", Measurement: "reports", Against: nameSilent, AtLeast: 0.99}},
		},
		{
			name: "viewers", take: (*session).viewers,
			goals: []report.Goal{{Name: "viewers", Measurement: "viewers", Against: nameUnseen, AtLeast: 0.98}},
		},
	}
}

// reports measures drains that tell operators of themselves, as often as they do by default, beside drains that are
// silent: a drain of some seconds has the first report and the last.
func (s *session) reports(ctx context.Context) error {
	return s.inPairs(ctx, "reports", 2*scaleMessages,
		map[string]contender.Variant{contender.NameOurs: {}, nameSilent: {Reports: 24 * time.Hour}})
}

// viewers measures drains in a process at whose console people look every two seconds, beside drains
// that nobody sees. They are long enough for some looks.
func (s *session) viewers(ctx context.Context) error {
	return s.inPairs(ctx, "viewers", 5*scaleMessages, map[string]contender.Variant{contender.NameOurs: {Viewers: viewers}, nameUnseen: {}})
}

// inPairs measures variants again and again, with what each message costs: on a busy machine that tells more
// than how long it took.
func (s *session) inPairs(ctx context.Context, name string, messages int, variants map[string]contender.Variant) error {
	names := slices.Sorted(maps.Keys(variants))
	for round := range pairs * s.options.fewRounds {
		for _, variant := range rotated(names, round) {
			found, err := s.bench.Drain(ctx, contender.Ours(variant, variants[variant]), measure.Drain{Messages: messages})
			if err != nil {
				return err
			}
			s.found(name, variant, perSecond, found.Rate)
			s.explain(name, variant, found.Cost, messages)
		}
	}
	return nil
}
