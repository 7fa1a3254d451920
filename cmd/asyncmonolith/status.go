package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func (a *app) statusCommand() *cobra.Command {
	check := false
	c := &cobra.Command{
		Use: "status", Short: "Show what waits and what fails, at one glance", Args: takes(cobra.NoArgs),
		Long: `Show what waits for each consumer, what has failed lately, who runs, and what people change. Counts stop at
10,000, so that looking costs the same however much there is.

With --check it says what is wrong, in a line each, and exits with 6 if anything is: poisoned messages, processes
that vanished within a day, consumers that ignore their timeout or are stopped by a gate or breaker, messages that
no live process takes, projections that have halted, operations that have paused themselves.`,
		Example: "  asyncmonolith status\n  asyncmonolith status --check --json",
		RunE: func(c *cobra.Command, _ []string) error {
			seat, err := a.seat()
			if err != nil {
				return err
			}
			o, err := seat.Overview(c.Context())
			if err != nil {
				return err
			}
			var problems []string
			if check {
				states, err := seat.Projections(c.Context())
				if err != nil && !errors.Is(err, errors.ErrUnsupported) {
					return err
				}
				problems = append(wrong(o), halted(states)...)
			}
			var failed error
			if len(problems) > 0 {
				failed = errCheckFailed
			}
			if a.json {
				return a.also(struct {
					ops.Overview
					Problems []string `json:"problems,omitempty"`
				}{o, problems}, failed)
			}
			if err := a.overview(o); err != nil {
				return err
			}
			for _, problem := range problems {
				a.note("%s", problem)
			}
			return failed
		},
	}
	c.Flags().BoolVar(&check, "check", false, "exit with 6 if something is wrong, and say what")
	a.contentFlag(c)
	return c
}

// overview writes it for people.
func (a *app) overview(o ops.Overview) error {
	if err := queues().write(a, o.Queues, nil); err != nil {
		return err
	}
	alive, vanished := 0, 0
	for _, p := range o.Processes {
		switch p.Status {
		case outbox.ProcessAlive:
			alive++
		case outbox.ProcessVanished:
			vanished++
		}
	}
	a.gap()
	if err := a.say("Processes: %d alive, %d vanished within a day.", alive, vanished); err != nil {
		return err
	}
	if len(o.Failures) > 0 {
		a.gap()
		if err := failures().write(a, o.Failures, nil); err != nil {
			return err
		}
	}
	if len(o.Operations) > 0 {
		a.gap()
		return operations().write(a, o.Operations, nil)
	}
	return nil
}

func failures() list[outbox.Failure] {
	return list[outbox.Failure]{
		titles: []string{"FAILS LATELY", "FINGERPRINT", "ERROR TYPE", "RUNS", "FIRST", "LAST", "SINCE VERSION", "LAST ERROR"}, right: []bool{false, false, false, true},
		row: func(f outbox.Failure) []any {
			return []any{f.Consumer, f.Fingerprint, f.ErrorType, f.Runs, f.FirstAt, f.LastAt, f.FirstVersion, f.Sample}
		},
	}
}

// wrong is what needs somebody.
func wrong(o ops.Overview) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, q := range o.Queues {
		if q.Poisoned > 0 {
			say("consumer %q: poisoned messages: %s", q.Consumer, count(q.Poisoned))
		}
		if q.ParkedKeys > 0 {
			say("consumer %q: parked keys: %s", q.Consumer, count(q.ParkedKeys))
		}
	}
	for _, s := range o.Strangers {
		say("consumer %q, payload type %q: no live process takes its messages", s.Consumer, s.PayloadType)
	}
	for _, p := range o.Processes {
		who := fmt.Sprintf("process %d of %s on %s (%s)", p.PID, p.Program, p.Host, p.Kind)
		if p.Status == outbox.ProcessVanished {
			say("%s: vanished, last seen %s UTC", who, p.SeenAt.UTC().Format("2006-01-02 15:04:05"))
			continue
		}
		if len(p.Stuck) > 0 {
			say("%s: stuck in %s", who, strings.Join(p.Stuck, ", "))
		}
		if len(p.Closed) > 0 {
			say("%s: stopped by a gate or breaker: %s", who, strings.Join(p.Closed, ", "))
		}
	}
	for _, operation := range o.Operations {
		if operation.State == ops.Paused {
			say("%s", how(operation))
		}
	}
	return problems
}

// halted are projections that wait for somebody.
func halted(states []projection.State) (problems []string) {
	for _, s := range states {
		if s.Status == "halted" {
			problems = append(problems, fmt.Sprintf("projection %q, version %d, shard %d: halted at position %d", s.Name, s.Version, s.Shard, s.Position))
		}
	}
	return problems
}
