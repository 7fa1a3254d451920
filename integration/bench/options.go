package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
)

const (
	fullRounds  = 3
	quickRounds = 2 // and one of what is steady or takes its time: see options.fewRounds
)

// options are the command line.
type options struct {
	quick  bool
	rounds int
	// fewRounds is the number of rounds where a quick run cannot afford more than
	// one. It is the same as rounds in a full run, and when rounds was given.
	fewRounds int
	only      []string // names of bars and steps; empty means all
	json      string
	plots     string
}

func parseOptions(args []string, output io.Writer) (options, error) {
	var o options
	var only string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.BoolVar(&o.quick, "quick", false, "small sizes, no curves, and one line per bar")
	flags.IntVar(
		&o.rounds, "rounds", 0,
		fmt.Sprintf("how often each contender is measured (default %d, with -quick %d)", fullRounds, quickRounds),
	)
	flags.StringVar(&only, "only", "", "comma-separated `names` of bars or steps: "+strings.Join(names(false), ", "))
	flags.StringVar(&o.json, "json", "", "write everything into this `file`")
	flags.StringVar(&o.plots, "plots", "", "write plots into this `directory`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	switch {
	case o.rounds < 0:
		errs = append(errs, fmt.Errorf("-rounds %d: 1 or more is allowed", o.rounds))
	case o.rounds > 0:
		o.fewRounds = o.rounds
	case o.quick:
		o.rounds, o.fewRounds = quickRounds, 1
	default:
		o.rounds, o.fewRounds = fullRounds, fullRounds
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	known := names(o.quick)
	for _, name := range o.only {
		if !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("-only: %q is not one of %s", name, strings.Join(known, ", ")))
		}
	}
	return o, errors.Join(errs...)
}

// names lists what -only takes.
func names(quick bool) []string {
	var all []string
	for _, s := range steps() {
		if !quick || s.quick {
			all = append(all, s.name)
			for _, g := range s.goals {
				if g.Name != s.name {
					all = append(all, g.Name)
				}
			}
		}
	}
	return all
}

// steps returns the steps to take.
func (o options) steps() []step {
	return slices.DeleteFunc(steps(), func(s step) bool {
		return o.quick && !s.quick || len(o.goalsOf(s)) == 0 && !o.selects(s.name)
	})
}

// goalsOf returns the bars of a step that are selected. A step stands for all of
// its bars, unless one of them has the same name.
func (o options) goalsOf(s step) []report.Goal {
	namesake := slices.ContainsFunc(s.goals, func(g report.Goal) bool { return g.Name == s.name })
	return slices.DeleteFunc(slices.Clone(s.goals), func(g report.Goal) bool {
		return !o.selects(g.Name) && (namesake || !o.selects(s.name))
	})
}

func (o options) selects(name string) bool { return len(o.only) == 0 || slices.Contains(o.only, name) }
