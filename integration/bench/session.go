package main

import (
	"fmt"
	"io"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/measure"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
)

// session is one run of the program: what the steps share.
type session struct {
	options  options
	bench    *measure.Bench
	report   *report.Report
	progress io.Writer
	start    time.Time
	step     string  // which is taken
	others   float64 // the most of the machine that others had in a measurement, from 0 to 1
}

// found keeps the figure of one round and shows it as progress.
func (s *session) found(measurement, contender, unit string, value float64) {
	s.report.Add(measurement, contender, unit, value)
	s.say("%s of %s: %s %s", measurement, contender, report.Number(value), unit)
}

// explain keeps what a figure was made of.
func (s *session) explain(measurement, contender string, c measure.Cost, messages int) {
	n, seconds := float64(messages), c.Took.Seconds()
	if c.Trips > 0 {
		s.found(measurement+"-trips", contender, "round trips/message", float64(c.Trips)/n)
	}
	s.found(measurement+"-client", contender, "µs/message", float64(c.Client.Microseconds())/n)
	s.found(measurement+"-server", contender, "µs/message", float64(c.Server.Microseconds())/n)
	if c.Broker > 0 {
		s.found(measurement+"-broker", contender, "µs/message", float64(c.Broker.Microseconds())/n)
	}
	if c.Claims > 0 {
		s.found(measurement+"-claims", contender, "claims/s", float64(c.Claims)/seconds)
		s.found(measurement+"-claimed", contender, "messages/claim", n/float64(c.Claims))
		s.found(measurement+"-settles", contender, "statements/s", float64(c.Outcomes)/seconds)
	}
	s.others = max(s.others, c.Busy())
	s.say("others had %.0f %% of the machine", 100*c.Busy())
}

func (s *session) say(format string, args ...any) {
	// Nothing depends on the progress being seen.
	_, _ = fmt.Fprintf(s.progress, "%5.1f s  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// sized chooses between the sizes of the full and the quick run.
func (s *session) sized(full, quick int) int {
	if s.options.quick {
		return quick
	}
	return full
}

// entry is a contender and how many messages it is given: a slow one gets fewer.
type entry struct {
	name     string
	messages int
}

// rounds measures every entry once in each of n rounds. The order rotates, so that what one
// leaves behind for the next does not always meet the same.
func (s *session) rounds(n int, entries []entry, measure func(c contender.Contender, messages int) error) error {
	for round := range n {
		for _, e := range rotated(entries, round) {
			c, err := contender.ByName(e.name)
			if err != nil {
				return err
			}
			s.say("%s of %s, round %d of %d", s.step, e.name, round+1, n)
			if err := measure(c, e.messages); err != nil {
				return fmt.Errorf("round %d of %s: %w", round+1, e.name, err)
			}
		}
	}
	return nil
}

// rotated returns the items beginning with the n-th, the first ones at the end.
func rotated[T any](items []T, n int) []T {
	n %= len(items)
	return append(append(make([]T, 0, len(items)), items[n:]...), items[:n]...)
}
