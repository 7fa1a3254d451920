package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

type statusCommand struct {
	app     *app
	check   bool
	watch   bool
	content contentFlag
}

func (s *statusCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show consumers, failures, processes and operations", Args: checkArgs(noArgs),
		Long: `Show each consumer's messages, recent failures, processes and operations. Counts stop at 10,000.

--check lists what needs attention instead, and exits with 6 if anything is critical: poisoned messages, blocked keys,
open circuits, unhandled messages, consumers that ignore their timeout, halted projections. Processes that were lost
within a day and operations without progress are warnings. The check is cheap and may run often. doctor checks more.`,
		Example: "  asyncmonolith status\n  asyncmonolith status --watch\n  asyncmonolith status --check --json",
		RunE:    s.app.onSession(s.run, s.content.config),
	}
	c.Flags().BoolVar(&s.check, "check", false, "list what needs attention, and exit with 6 if anything is critical")
	c.Flags().BoolVar(&s.watch, "watch", false, "refresh every 2 s until Ctrl-C")
	return s.content.add(c)
}

// showEvery is the time between looks. Overviews are cached, so the database is read less often.
const showEvery = 2 * time.Second

func (s *statusCommand) run(ctx context.Context, session *operator.Session, _ []string) error {
	if !s.watch {
		return s.once(ctx, session)
	}
	again := time.NewTicker(showEvery)
	defer again.Stop()
	for {
		if s.app.width > 0 && !s.app.json {
			_, _ = io.WriteString(s.app.out, "\x1b[H\x1b[2J") // a terminal is cleared
		}
		if err := s.once(ctx, session); err != nil && ctx.Err() == nil && !errors.Is(err, errCheckFailed) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

func (s *statusCommand) once(ctx context.Context, session *operator.Session) error {
	if s.check {
		return s.attention(ctx, session)
	}
	o, err := session.Overview(ctx)
	switch {
	case err != nil:
		return err
	case s.app.json:
		err = s.app.line(newStatus(o))
	default:
		err = s.overview(o)
		s.content.withheld(s.app.output, len(o.Failures) > 0)
	}
	if err == nil {
		err = o.Outdated
	}
	return err
}

func (s *statusCommand) attention(ctx context.Context, session *operator.Session) error {
	found, err := session.Check(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 && !s.app.json {
		return s.app.say("All clear.")
	}
	return findings(found).write(s.app.output, false)
}

// overview writes an overview as text.
func (s *statusCommand) overview(o operator.Overview) error {
	out := s.app.output
	noteUnseen(out, o)
	if !o.Missing("queues") {
		if err := queues(o.At).write(out, o.Queues, nil); err != nil {
			return err
		}
		out.blankLine()
	}
	if alive, lost := o.Programs(); !o.Missing("processes") {
		if err := out.say("Programs: %d alive, %d lost within a day.", alive, lost); err != nil {
			return err
		}
	}
	if len(o.Failures) > 0 {
		out.blankLine()
		if err := failures().write(out, o.Failures, nil); err != nil {
			return err
		}
	}
	if len(o.Operations) > 0 {
		out.blankLine()
		return operations().write(out, o.Operations, nil)
	}
	return nil
}

// noteUnseen says which parts of an overview could not be read.
func noteUnseen(out *output, o operator.Overview) {
	for _, u := range o.Unseen {
		out.note("%s", u)
	}
}

// failures lists failure groups. A narrow terminal shows the first failure rather than the last.
func failures() list[admin.FailureGroup] {
	return list[admin.FailureGroup]{
		columns: []show.Column{{Title: "RECENT FAILURES"}, {Title: "FINGERPRINT"}, {Title: "RUNS", Kind: show.Number},
			{Title: "FIRST", Kind: show.Whole, Gives: 3}, {Title: "LAST", Kind: show.Whole, Gives: 1},
			{Title: "SINCE", Gives: 4}, {Title: "ERROR TYPE", Gives: 2}},
		row: func(f admin.FailureGroup) []any {
			return []any{f.Consumer, f.Fingerprint, f.Runs, f.FirstAt, f.LastAt, f.FirstVersion, f.ErrorType}
		},
		below: func(f admin.FailureGroup) []string { return []string{f.Sample} },
	}
}

// status is the JSON of an overview. It leaves out long parts that other commands have.
type status struct {
	At         time.Time            `json:"at"`
	Unseen     []operator.Unseen    `json:"unseen,omitempty"`
	Queues     []admin.Queue        `json:"queues"`
	Failures   []admin.FailureGroup `json:"failures,omitempty"`
	Processes  []admin.Process      `json:"processes,omitempty"`
	Unhandled  []admin.Unhandled    `json:"unhandled,omitempty"`
	Operations []ops.Operation      `json:"operations,omitempty"`
}

// mostSample is how many runes of an error's text a status has.
const mostSample = 300

func newStatus(o operator.Overview) status {
	s := status{At: o.At.UTC(), Unseen: o.Unseen, Queues: o.Queues, Unhandled: o.Unhandled}
	for _, f := range o.Failures {
		if text := []rune(f.Sample); len(text) > mostSample {
			f.Sample = string(text[:mostSample]) + "…"
		}
		s.Failures = append(s.Failures, f)
	}
	for _, p := range o.Processes {
		p.Consumers, p.Schedules, p.Projections, p.Relays = nil, nil, nil, nil
		s.Processes = append(s.Processes, p)
	}
	for _, operation := range o.Operations {
		operation.Target.IDs = nil
		if operation.Preview != nil {
			operation.Preview = &ops.Preview{Messages: operation.Preview.Messages, More: operation.Preview.More}
		}
		s.Operations = append(s.Operations, operation)
	}
	return s
}
