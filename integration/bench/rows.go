package main

import (
	"context"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/measure"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
)

const (
	postgres = "postgres"
	sqlite   = "sqlite"
	mariadb  = "mariadb"

	// nameNoneFails is ours while no message fails, which is compared with ours while
	// some do.
	nameNoneFails = "ours-none-fails"
)

// rowSteps are those of rows that come back, and of rows that are in the way.
func rowSteps() []step {
	fails := step{name: "fails", take: (*session).fails}
	for _, database := range []string{postgres, sqlite, mariadb} {
		for _, goal := range []report.Goal{{Name: failsName(1, database), AtLeast: 0.7}, {Name: failsName(20, database), AtLeast: 0.5}} {
			goal.Measurement, goal.Against = goal.Name, nameNoneFails
			fails.goals = append(fails.goals, goal)
		}
	}
	return []step{
		fails,
		{name: "foreign", quick: true, take: (*session).foreign, goals: []report.Goal{{Name: "foreign", Measurement: "foreign", AtLeast: 0.8}}},
		{name: "dead", quick: true, take: (*session).dead, goals: []report.Goal{{Name: "dead", Measurement: "dead", AtLeast: 0.8}}},
	}
}

func failsName(percent int, database string) string {
	return fmt.Sprintf("fails-%d-%s", percent, database)
}

// fails measures drains in which some messages fail once, and drains in which none does.
func (s *session) fails(ctx context.Context) error {
	for round := range s.options.rounds {
		for _, database := range rotated([]string{postgres, sqlite, mariadb}, round) {
			for _, percent := range rotated([]int{0, 1, 20}, round) {
				found, err := s.drainFailing(ctx, database, percent)
				if err != nil {
					return fmt.Errorf("round %d, %d %% fail on %s: %w", round+1, percent, database, err)
				}
				if percent > 0 {
					s.found(failsName(percent, database), contender.NameOurs, perSecond, found.Rate)
					continue
				}
				for _, some := range []int{1, 20} {
					s.found(failsName(some, database), nameNoneFails, perSecond, found.Rate)
				}
			}
		}
	}
	return nil
}

func (s *session) drainFailing(ctx context.Context, database string, percent int) (measure.Drained, error) {
	v, d := contender.Variant{Failing: int64(percent)}, measure.Drain{Messages: scaleMessages}
	switch database {
	case sqlite:
		return s.bench.DrainSQLite(ctx, v, d)
	case mariadb:
		d.Messages = scaleMessages / 2 // it is the slowest
		return s.bench.DrainMariaDB(ctx, v, d)
	}
	return s.bench.Drain(ctx, contender.Ours(contender.NameOurs, v), d)
}

// foreign measures a backlog behind rows that no consumer takes.
func (s *session) foreign(ctx context.Context) error {
	return s.inTheWay(ctx, report.Curve{Name: "foreign", Title: "Drain by rows that nobody takes", X: "rows that nobody takes", Y: perSecond},
		func(rows int) measure.Drain { return measure.Drain{Foreign: rows} })
}

// dead measures a backlog behind dead rows that a snapshot keeps from being removed.
func (s *session) dead(ctx context.Context) error {
	return s.inTheWay(ctx, report.Curve{Name: "dead", Title: "Drain by dead rows under an open snapshot", X: "dead rows", Y: perSecond},
		func(rows int) measure.Drain { return measure.Drain{Dead: rows} })
}

// inTheWay measures the drain of one backlog behind more and more rows, and compares that
// behind most of them with that behind none.
func (s *session) inTheWay(ctx context.Context, c report.Curve, behind func(rows int) measure.Drain) error {
	xs, label := []int{0, 1_000_000, 10_000_000}, "10M"
	if s.options.quick {
		xs, label = []int{0, 200_000}, "200k"
	}
	most := xs[len(xs)-1]
	medians, err := s.curve(c, xs, xs[1], func(x int) (float64, error) {
		d := behind(x)
		d.Messages = s.sized(2*scaleMessages, 40_000)
		return s.drainRate(ctx, contender.Variant{}, d)
	})
	if err == nil {
		s.found(c.Name, contender.NameOurs, "× of none at "+label, medians[most]/medians[0])
	}
	return err
}
