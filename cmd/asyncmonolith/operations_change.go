package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// operationDecision is undo or stop. These prevent changes and so need no confirmation.
type operationDecision struct {
	app    *app
	reason string
	decide func(*ops.Operations, context.Context, string, int64) (ops.Operation, error)
}

func undoCommand(a *app) *cobra.Command {
	d := &operationDecision{app: a, decide: (*ops.Operations).Undo}
	return d.command(&cobra.Command{
		Use: "undo ID", Short: "Cancel an operation that has not started",
		Long:    "Cancel an operation that has not started.",
		Example: "  asyncmonolith operations undo 12",
	})
}

func stopCommand(a *app) *cobra.Command {
	d := &operationDecision{app: a, decide: (*ops.Operations).Stop}
	return d.command(&cobra.Command{
		Use: "stop ID", Short: "Stop an operation",
		Long:    `Stop an operation. Changes that it has made remain. It also closes a change whose process died.`,
		Example: "  asyncmonolith operations stop 12",
	})
}

func (d *operationDecision) command(c *cobra.Command) *cobra.Command {
	c.RunE = d.app.onIDs(d.run)
	c.Flags().StringVar(&d.reason, "reason", "", "reason, for the audit")
	return oneOperation(d.app, c)
}

func (d *operationDecision) run(ctx context.Context, session *operator.Session, ids []int64) error {
	o, err := d.decide(session.Operations(), ctx, d.reason, ids[0])
	if err != nil {
		return err
	}
	return newOperationReport(d.app, session).write(o)
}

// operationChange is resume or set-rate.
type operationChange struct {
	app *app
	confirmation
	decide func(*ops.Operations, context.Context, string, int64) (ops.Operation, error)
	rate   int // of set-rate
	canary int // of resume
}

func resumeOperationCommand(a *app) *cobra.Command {
	x := &operationChange{app: a}
	x.decide = func(s *ops.Operations, ctx context.Context, reason string, id int64) (ops.Operation, error) {
		return s.Resume(ctx, reason, id, x.canary)
	}
	c := x.command(&cobra.Command{
		Use: "resume ID", Short: "Resume an operation that paused itself",
		Long: "Resume an operation that paused itself because messages failed again or processes died. With --canary, a requeue\n" +
			"tries some messages first, and pauses if they fail again.",
		Example: "  asyncmonolith operations resume 12 --canary 10 --yes --reason \"the provider is back\"",
	})
	c.Flags().IntVar(&x.canary, "canary", 0, "messages that go first: up to 500, 0 for none")
	return c
}

func setRateCommand(a *app) *cobra.Command {
	x := &operationChange{app: a}
	x.decide = func(s *ops.Operations, ctx context.Context, reason string, id int64) (ops.Operation, error) {
		return s.SetRate(ctx, reason, id, x.rate)
	}
	return x.command(&cobra.Command{
		Use: "set-rate ID MESSAGES", Short: "Change the speed of an operation",
		Long:    "Change how many messages per second an operation changes, up to 100000.",
		Example: "  asyncmonolith operations set-rate 12 500 --yes --reason \"the provider allows it\"",
		Args:    x.rateArgs,
	})
}

// mostRate is package ops' limit.
const mostRate = 100_000

func (x *operationChange) rateArgs(c *cobra.Command, args []string) (err error) {
	if err := checkArgs(exactlyOne("operation", "operations list"))(c, args[:min(len(args), 1)]); err != nil {
		return err
	}
	if len(args) != 2 {
		return usage(fmt.Errorf("one rate in messages per second is allowed: see %s --help", c.CommandPath()))
	}
	x.rate, err = strconv.Atoi(args[1])
	if err != nil || x.rate < 1 || x.rate > mostRate {
		return usage(fmt.Errorf("rate %q: 1 to %d messages per second are allowed", args[1], mostRate))
	}
	return nil
}

func (x *operationChange) command(c *cobra.Command) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error { return x.app.onIDs(x.run)(c, args[:1]) }
	return x.confirmed(oneOperation(x.app, c))
}

func (x *operationChange) run(ctx context.Context, session *operator.Session, ids []int64) error {
	report := newOperationReport(x.app, session)
	if err := x.unconfirmed(); err != nil {
		o, failed := session.Operations().Get(ctx, ids[0])
		if failed != nil {
			return failed
		}
		return cmp.Or(report.write(o), err)
	}
	o, err := x.decide(session.Operations(), ctx, x.reason, ids[0])
	if err != nil {
		return err
	}
	report.noteUntaken(ctx, o)
	text := stateText(o)
	if x.rate > 0 {
		text += fmt.Sprintf("; %d messages per second", o.Rate)
	}
	return x.app.result(o, text+".", nil)
}
