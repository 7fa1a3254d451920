package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// operationStart is the part of a command that previews or starts an operation.
type operationStart struct {
	app *app
	confirmation
	action     ops.Action
	done       string // a participle for messages
	undoWindow time.Duration
	wait       bool
	options    ops.StartOptions
}

// add adds the flags. waits is the help of --wait.
func (s *operationStart) add(c *cobra.Command, waits string) {
	c.Flags().BoolVar(&s.wait, "wait", false, waits)
	c.Flags().DurationVar(&s.undoWindow, "undo-window", 10*time.Second, "time before the start in which the operation can be undone")
	s.confirmed(c)
}

// config is a setting of the session.
func (s *operationStart) config(c *ops.Config) {
	c.UndoWindow = cmp.Or(s.undoWindow, -1) // 0 would be the default
}

func (s *operationStart) checkUndoWindow() error {
	if s.undoWindow < 0 {
		return usage(fmt.Errorf("--undo-window %s: 0 or more is allowed", s.undoWindow))
	}
	return nil
}

// start starts an operation. Without --yes it writes a preview.
func (s *operationStart) start(ctx context.Context, session *operator.Session, target ops.Target) error {
	if err := s.unconfirmed(); err != nil {
		preview, failed := session.Operations().Preview(ctx, s.action, target)
		if failed != nil {
			return s.noMatch(ctx, session, target, failed)
		}
		said := s.preview(preview)
		s.noteWaiting(ctx, session, preview.Consumers)
		return errors.Join(said, err)
	}
	planned, err := session.Operations().Plan(ctx, s.action, target)
	if err != nil {
		return s.noMatch(ctx, session, target, err)
	}
	options := s.options
	options.Reason = s.reason
	options.Canary = cmp.Or(options.Canary, -1) // 0 would be the default
	report := newOperationReport(s.app, session)
	started, err := session.Operations().Start(ctx, planned.ID, options)
	already := errors.Is(err, ops.ErrInProgress)
	if already {
		err = report.already(started)
	}
	if err != nil {
		return err
	}
	if started.Preview != nil {
		s.noteWaiting(ctx, session, started.Preview.Consumers)
	}
	if s.wait {
		return report.watch(ctx, started.ID, started.Target.Projection == "")
	}
	if s.app.json {
		report.noteUntaken(ctx, started)
		return s.app.line(started)
	}
	if started.Preview != nil && !already {
		if err := s.preview(*started.Preview); err != nil {
			return err
		}
	}
	return report.started(ctx, started)
}

// noMatch turns ErrNoMatch into a usage error if the consumer is mistyped.
func (s *operationStart) noMatch(ctx context.Context, session *operator.Session, t ops.Target, err error) error {
	consumer := ""
	switch {
	case !errors.Is(err, ops.ErrNoMatch):
	case t.Poisoned != nil:
		consumer = t.Poisoned.Consumer
	case t.Pending != nil:
		consumer = t.Pending.Consumer
	}
	return cmp.Or(checkSpelling(ctx, session, consumer, 0), err)
}

// noteWaiting says of which consumers requeued messages wait.
func (s *operationStart) noteWaiting(ctx context.Context, session *operator.Session, consumers []string) {
	if s.action == ops.Requeue && len(consumers) > 0 {
		newOperationReport(s.app, session).noteWaiting(ctx, consumers)
	}
}

func (s *operationStart) preview(p ops.Preview) error {
	if s.app.json {
		return s.app.line(p)
	}
	if p.Duplicate > 0 {
		s.app.note("Operation %d, in progress or planned by another user, does the same.", p.Duplicate)
	}
	for _, id := range p.Overlapping {
		s.app.note("Operation %d is in progress and changes messages of the same consumer.", id)
	}
	if p.Poisoned != nil {
		if err := previewKinds().write(s.app.output, p.Poisoned.Kinds, nil); err != nil {
			return err
		}
	}
	if len(p.Pending) > 0 {
		if err := pendingKinds().write(s.app.output, p.Pending, nil); err != nil {
			return err
		}
	}
	switch {
	case p.Messages == 0:
		return nil
	case s.action == ops.RetryParked:
		return s.app.say("%s will be applied again. Events parked later are not included.", plural(p.Messages, "event"))
	}
	said := fmt.Sprintf("%s will be %s. Later messages are not included.", plural(p.Messages, "message"), s.done)
	if p.First {
		said = "The first " + said + " More messages match: start another operation for them."
	}
	if p.Messages > tableOf {
		said += " The table has the first 10,000 only."
	}
	return s.app.say("%s", said)
}

// tableOf is how many messages the table of a preview counts.
const tableOf = 10_000

func pendingKinds() list[poison.PreviewKind] {
	return list[poison.PreviewKind]{
		columns: []show.Column{{Title: "CONSUMER"}, {Title: "PAYLOAD TYPE", Gives: 3}, {Title: "MESSAGES", Kind: show.Number},
			{Title: "OLDEST", Kind: show.Whole, Gives: 2}, {Title: "NEWEST", Kind: show.Whole, Gives: 1}},
		row: func(k poison.PreviewKind) []any {
			return []any{k.Consumer, k.PayloadType, k.Messages, k.Oldest, k.Newest}
		},
	}
}

func previewKinds() list[poison.PreviewKind] {
	return list[poison.PreviewKind]{
		columns: []show.Column{{Title: "CONSUMER"}, {Title: "PAYLOAD TYPE", Gives: 3}, {Title: "MESSAGES", Kind: show.Number},
			{Title: "OLDEST", Kind: show.Whole, Gives: 2}, {Title: "NEWEST", Kind: show.Whole, Gives: 1},
			{Title: "CONFLICTS", Kind: show.Number}, {Title: "NO LIVE PROCESS", Kind: show.Number}},
		row: func(k poison.PreviewKind) []any {
			return []any{k.Consumer, k.PayloadType, k.Messages, k.Oldest, k.Newest, count(int64(k.Conflicts)), count(int64(k.Unhandled))}
		},
	}
}
