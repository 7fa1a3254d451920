package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// pendingChange is a command that changes pending messages: cancel, run-now or reschedule.
type pendingChange struct {
	bulkChange
	filter pendingFilter
	do     func(messages *operator.Messages, ctx context.Context, reason string, ids ...int64) (admin.Result, error)
}

func newPendingChange(a *app, action ops.Action, done string) *pendingChange {
	x := &pendingChange{bulkChange: bulkChange{operationStart: operationStart{app: a, action: action, done: done}}}
	x.selected, x.byIDs = &x.filter, x.changeIDs
	return x
}

const asOperation = ` Ids are changed
at once. Flags select messages for an operation, which starts after 10 s and can be undone until then.`

func cancelCommand(a *app) *cobra.Command {
	x := newPendingChange(a, ops.Cancel, "cancelled")
	x.do = (*operator.Messages).Cancel
	return x.command(&cobra.Command{
		Use: "cancel [ID...]", Short: "Delete pending messages",
		Long: "Delete pending messages. Running ones are skipped, and the exit code is then 5." + asOperation,
		Example: `  asyncmonolith messages cancel 4711 --yes --reason "the order is void"
  asyncmonolith messages cancel --consumer mail --older-than 24h --yes --reason "not wanted any more"`,
	})
}

func runNowCommand(a *app) *cobra.Command {
	x := newPendingChange(a, ops.RunNow, "due now")
	x.do = (*operator.Messages).RunNow
	return x.command(&cobra.Command{
		Use: "run-now [ID...]", Short: "Run pending messages now",
		Long: "Make pending messages due now. Messages of a paused consumer wait until it is resumed." + asOperation,
		Example: `  asyncmonolith messages run-now 4711 4712 --yes --reason "the provider is back"
  asyncmonolith messages run-now --consumer mail --retrying --yes --reason "the provider is back"`,
	})
}

func rescheduleCommand(a *app) *cobra.Command {
	x := newPendingChange(a, ops.Reschedule, "rescheduled")
	var at instant
	x.do = func(s *operator.Messages, ctx context.Context, reason string, ids ...int64) (admin.Result, error) {
		return s.Reschedule(ctx, reason, at.Time, ids...)
	}
	c := x.command(&cobra.Command{
		Use: "reschedule [ID...] --at TIME", Short: "Change when pending messages are due",
		Long:    "Change when pending messages are due. A time in the past means now." + asOperation,
		Example: `  asyncmonolith messages reschedule 4711 --at "2026-05-01 06:00:00" --yes --reason "after the migration"`,
	})
	c.Flags().Var(&at, "at", "when the messages are due, in UTC")
	c.RunE = func(c *cobra.Command, args []string) error {
		if at.IsZero() {
			return usage(errors.New("--at is missing: give the new due time"))
		}
		x.at = at.Time
		return x.run(c, args)
	}
	return c
}

func (x *pendingChange) changeIDs(ctx context.Context, session *operator.Session, ids []int64) error {
	if err := x.unconfirmed(); err != nil {
		return x.previewIDs(ctx, session, ids, err)
	}
	result, err := x.do(session.Messages(), ctx, x.reason, ids...)
	if err != nil {
		return err
	}
	switch {
	case result.Changed == 0 && len(result.Running) == 0:
		err = fmt.Errorf("%w: no pending message has one of these ids", errNotFound)
	case len(result.Running)+len(result.Missing) > 0:
		err = errPartly
	}
	text := fmt.Sprintf("%s %s.", plural(result.Changed, "message"), x.done) + leftOut(result.Running, result.Missing)
	return x.app.result(result, text, err)
}

func (x *pendingChange) previewIDs(ctx context.Context, session *operator.Session, ids []int64, unconfirmed error) error {
	var found []admin.Message
	var missing, leased []int64
	for _, id := range ids {
		m, err := session.Messages().Get(ctx, id)
		switch {
		case errors.Is(err, admin.ErrNotFound):
			missing = append(missing, id)
		case err != nil:
			return err
		default:
			found = append(found, m.Message)
			if m.State == admin.Leased {
				leased = append(leased, id)
			}
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("%w: no pending message has one of these ids", errNotFound)
	}
	if err := pending("").write(x.app.output, found, nil); err != nil || x.app.json {
		return errors.Join(err, unconfirmed)
	}
	text := fmt.Sprintf("%s would be %s.", plural(len(found)-len(leased), "message"), x.done) + leftOut(leased, missing)
	return errors.Join(x.app.say("%s", text), unconfirmed)
}

// leftOut lists the messages that are not changed.
func leftOut(leased, missing []int64) string {
	return formatIDs(" %s leased and skipped: %v.", leased) + formatIDs(" %s not pending: %v.", missing)
}

// formatIDs fills a format with a number of messages and their ids; it returns "" if there are none.
func formatIDs(format string, ids []int64) string {
	if len(ids) == 0 {
		return ""
	}
	return fmt.Sprintf(format, plural(len(ids), "message"), ids)
}
