package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// pendingBulk is a change of pending messages.
func (a *app) pendingBulk(action ops.Action, done string, filter *pendingFilter, do func(context.Context, *ops.Session, []int64) (admin.Result, error)) *bulk {
	return &bulk{app: a, action: action, done: done, target: filter.target, named: func(ctx context.Context, session *ops.Session, ids []int64) error {
		return a.changePending(ctx, session, ids, done, do)
	}}
}

const asOperation = ` Those with the ids are changed at once, all that match the
flags as an operation, which begins after 10 s, in which it can be undone.`

func (a *app) cancelCommand() *cobra.Command {
	var filter pendingFilter
	c := a.pendingBulk(ops.Cancel, "cancelled", &filter, func(ctx context.Context, s *ops.Session, ids []int64) (admin.Result, error) {
		return s.Messages().Cancel(ctx, a.reason, ids...)
	}).command(&cobra.Command{
		Use: "cancel [ID...]", Short: "Delete pending messages for good",
		Long: "Delete pending messages for good. One that runs is skipped, and the exit code is 5." + asOperation,
		Example: `  asyncmonolith messages cancel 4711 --yes --reason "the order is void"
  asyncmonolith messages cancel --consumer mail --older-than 24h --yes --reason "not wanted any more"`,
	})
	filter.flags(a, c)
	return c
}

func (a *app) runNowCommand() *cobra.Command {
	var filter pendingFilter
	c := a.pendingBulk(ops.RunNow, "due now", &filter, func(ctx context.Context, s *ops.Session, ids []int64) (admin.Result, error) {
		return s.Messages().RunNow(ctx, a.reason, ids...)
	}).command(&cobra.Command{
		Use: "run-now [ID...]", Short: "Make pending messages due now",
		Long: "Make pending messages due now: they run as soon as a process has room. One of a paused consumer waits for its\nresumption." + asOperation,
		Example: `  asyncmonolith messages run-now 4711 4712 --yes --reason "the provider is back"
  asyncmonolith messages run-now --consumer mail --retrying --yes --reason "the provider is back"`,
	})
	filter.flags(a, c)
	return c
}

func (a *app) rescheduleCommand() *cobra.Command {
	var filter pendingFilter
	var at instant
	b := a.pendingBulk(ops.Reschedule, "rescheduled", &filter, func(ctx context.Context, s *ops.Session, ids []int64) (admin.Result, error) {
		return s.Messages().Reschedule(ctx, a.reason, at.Time, ids...)
	})
	b.target = func() (ops.Target, bool) {
		target, narrow := filter.target()
		target.At = at.Time
		return target, narrow
	}
	c := b.command(&cobra.Command{
		Use: "reschedule [ID...] --at TIME", Short: "Make pending messages due at another time",
		Long:    "Make pending messages due at another time. One in the past means now." + asOperation,
		Example: `  asyncmonolith messages reschedule 4711 --at "2026-05-01 06:00:00" --yes --reason "after the migration"`,
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if at.IsZero() {
			return usage(errors.New("--at is missing: when the messages are to be due"))
		}
		return b.run(c.Context(), args)
	}
	filter.flags(a, c)
	c.Flags().Var(&at, "at", "when, in UTC")
	return c
}

// changePending shows pending messages, or changes them and says what became of them.
func (a *app) changePending(ctx context.Context, session *ops.Session, named []int64, what string, do func(context.Context, *ops.Session, []int64) (admin.Result, error)) error {
	if err := a.unconfirmed(); err != nil {
		return a.previewPending(ctx, session, named, what, err)
	}
	result, err := do(ctx, session, named)
	if err != nil {
		return err
	}
	switch {
	case result.Changed == 0 && len(result.Running) == 0:
		err = fmt.Errorf("%w: no pending message has one of these ids", errNotFound)
	case len(result.Running)+len(result.Missing) > 0:
		err = errPartly
	}
	if a.json {
		return a.also(result, err)
	}
	return a.alsoSay(fmt.Sprintf("%s %s.%s%s", messages(result.Changed), what, theOnes(" %s leased and skipped: %v.", result.Running), theOnes(" %s not pending: %v.", result.Missing)), err)
}

// previewPending shows messages, and which there are not.
func (a *app) previewPending(ctx context.Context, session *ops.Session, named []int64, what string, unconfirmed error) error {
	var found []admin.Message
	var missing []int64
	for _, id := range named {
		m, err := session.Messages().Get(ctx, id)
		switch {
		case errors.Is(err, admin.ErrNotFound):
			missing = append(missing, id)
		case err != nil:
			return err
		default:
			found = append(found, m.Message)
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("%w: no pending message has one of these ids", errNotFound)
	}
	if err := pending("").write(a, found, nil); err != nil || a.json {
		return errors.Join(err, unconfirmed)
	}
	return a.alsoSay(fmt.Sprintf("%s would be %s.%s", messages(len(found)), what, theOnes(" %s not pending: %v.", missing)), unconfirmed)
}

// messages is a number of them.
func messages(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}

// theOnes is a part of a sentence about ids, unless there are none.
func theOnes(format string, ids []int64) string {
	if len(ids) == 0 {
		return ""
	}
	return fmt.Sprintf(format, messages(len(ids)), ids)
}
