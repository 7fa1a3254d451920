package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func (a *app) operationsCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "operations",
		Short: "List what people have changed, and undo, stop or watch what is under way",
		Long: `List what people have changed, which is the audit, and what is under way: operations change many messages, and
can be undone until they begin, and stopped. To undo or to stop keeps things from changing, and so needs
neither --yes nor --reason.`,
		Example: `  asyncmonolith operations list
  asyncmonolith operations undo 12
  asyncmonolith operations set-rate 12 500 --yes --reason "the provider allows it"
  asyncmonolith operations run 12`,
	}
	root.AddCommand(a.listOperationsCommand(), a.showOperationCommand(),
		a.decideCommand("undo", "Take back an operation that has not begun", "Take back an operation that has not begun. Afterwards nothing of it ever happens.", (*ops.Session).Undo),
		a.decideCommand("stop", "End an operation where it is", `End an operation where it is. What it has changed stays changed.
It also closes what was begun by a process that has died since.`, (*ops.Session).Stop),
		a.resumeOperationCommand(), a.rateCommand(), a.watchCommand(), a.runOperationCommand())
	return asGroup(root)
}

func (a *app) listOperationsCommand() *cobra.Command {
	var page admin.Page
	c := &cobra.Command{
		Use: "list", Short: "List changes by people, the newest first", Args: takes(nothing),
		Long:    "List changes by people, the newest first. They are kept for 90 days.",
		Example: "  asyncmonolith operations list --limit 20",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkPage(page); err != nil {
				return err
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			found, next, err := session.Operations().List(c.Context(), page)
			if err != nil {
				return err
			}
			return operations().write(a, found, next)
		},
	}
	pageFlags(c, &page)
	a.contentFlag(c)
	return c
}

func operations() list[ops.Operation] {
	return list[ops.Operation]{
		columns: []show.Column{{Title: "OPERATION", Kind: show.Number}, {Title: "ACTION"}, {Title: "STATE"}, {Title: "CHANGED", Kind: show.Number}, {Title: "SKIPPED", Kind: show.Number, Gives: 3}, {Title: "CREATED", Kind: show.Whole, Gives: 5}, {Title: "FINISHED", Kind: show.Whole, Gives: 2}, {Title: "BY", Gives: 4}, {Title: "TARGET", Gives: 1}},
		row: func(o ops.Operation) []any {
			return []any{o.ID, o.Action, o.State, changedOf(o), count(o.Skipped), o.CreatedAt, o.FinishedAt, o.Actor, targetText(o.Target)}
		},
		below: func(o ops.Operation) []string { return []string{o.Reason, o.Note} },
		empty: "No change was made.",
	}
}

// changedOf is how many messages an operation has changed, of how many that it is about.
func changedOf(o ops.Operation) string {
	switch {
	case o.Preview != nil && o.Preview.More:
		return fmt.Sprintf("%d of %d+", o.Changed, o.Preview.Messages)
	case o.Preview != nil && o.Preview.Messages > 0:
		return fmt.Sprintf("%d of %d", o.Changed, o.Preview.Messages)
	default:
		return count(o.Changed)
	}
}

// operationCommand is one about an operation.
func (a *app) operationCommand(c *cobra.Command, do func(context.Context, *ops.Session, int64) error) *cobra.Command {
	name, rest, _ := strings.Cut(c.Use, " ")
	c.Use = strings.TrimSpace(name + " ID " + rest)
	if c.Args == nil {
		c.Args = takes(one("operation", "operations list"))
	}
	c.ValidArgsFunction = a.completeOperations
	c.RunE = func(c *cobra.Command, args []string) error {
		named, err := ids(args)
		if err != nil {
			return err
		}
		session, err := a.session()
		if err != nil {
			return err
		}
		return do(c.Context(), session, named[0])
	}
	return c
}

func (a *app) showOperationCommand() *cobra.Command {
	c := a.operationCommand(&cobra.Command{
		Use: "show", Short: "Show one operation", Long: "Show one operation: what it is about, who began it and why, and how far it is. With --show-payloads there are the texts of errors.", Example: "  asyncmonolith operations show 12",
	}, func(ctx context.Context, session *ops.Session, id int64) error {
		o, err := session.Operations().Get(ctx, id)
		if err != nil || a.json {
			return a.operation(o, err)
		}
		pairs := []any{"id", o.ID, "action", o.Action, "state", o.State, "note", o.Note, "by", o.Actor, "reason", o.Reason, "target", targetText(o.Target), "changed", o.Changed, "skipped", o.Skipped}
		if o.Preview != nil && o.Preview.Messages > 0 {
			matched := fmt.Sprint(o.Preview.Messages)
			if o.Preview.More {
				matched = "at least " + matched
			}
			pairs = append(pairs, "matched", matched)
		}
		return a.fields(append(pairs, "rate", o.Rate, "canary", o.Canary, "created", o.CreatedAt, "begins", o.StartsAt, "finished", o.FinishedAt)...)
	})
	a.contentFlag(c)
	return c
}

// targetText is what an operation is about.
func targetText(t ops.Target) string {
	var parts []string
	add := func(name string, value any) {
		if isSet(value) {
			parts = append(parts, name+" "+show.Value(value))
		}
	}
	add("consumer", t.Consumer)
	if f := t.Poisoned; f != nil {
		if len(f.IDs) > 0 {
			add("ids among", f.IDs)
		}
		add("consumer", f.Consumer)
		add("payload type", f.PayloadType)
		add("fingerprint", f.Fingerprint)
		add("key", f.OrderingKey)
		add("error", f.Error)
		add("poisoned after", f.PoisonedAfter)
		add("poisoned before", f.PoisonedBefore)
		if f.MessageID != uuid.Nil {
			add("message id", f.MessageID)
		}
	}
	if f := t.Pending; f != nil {
		add("consumer", f.Consumer)
		add("payload type", f.PayloadType)
		add("key", f.OrderingKey)
		add("insert id", f.InsertID)
		add("state", f.State)
		add("older than", f.OlderThan)
		if f.MessageID != uuid.Nil {
			add("message id", f.MessageID)
		}
		if f.Crashed {
			add("crashed", "only")
		}
		if f.Retrying {
			add("retrying", "only")
		}
	}
	if len(t.IDs) > 0 {
		add("ids", t.IDs)
	}
	add("operation", t.Operation)
	add("at", t.At)
	add("schedule", t.Schedule)
	add("projection", t.Projection)
	add("version", t.Version)
	return strings.Join(parts, ", ")
}

func (a *app) decideCommand(name, short, long string, do func(*ops.Session, context.Context, string, int64) (ops.Operation, error)) *cobra.Command {
	c := a.operationCommand(&cobra.Command{Use: name, Short: short, Long: long, Example: "  asyncmonolith operations " + name + " 12"}, func(ctx context.Context, session *ops.Session, id int64) error {
		o, err := do(session, ctx, a.reason, id)
		return a.operation(o, err)
	})
	c.Flags().StringVar(&a.reason, "reason", "", "why, for the audit")
	return c
}

// operation writes what an operation is now.
func (a *app) operation(o ops.Operation, err error) error {
	switch {
	case err != nil:
		return err
	case a.json:
		return a.line(o)
	default:
		return a.say("%s.", how(o))
	}
}

func (a *app) resumeOperationCommand() *cobra.Command {
	return a.decideAskedCommand(&cobra.Command{
		Use: "resume", Short: "Resume an operation that has paused itself",
		Long: "Resume an operation that has paused itself, since too much failed again or processes died while they ran it. " +
			"It goes on without canaries.",
		Example: "  asyncmonolith operations resume 12 --yes --reason \"the rest is other orders\"",
	}, how, (*ops.Session).Continue)
}

func (a *app) rateCommand() *cobra.Command {
	rate := 0
	return a.decideAskedCommand(&cobra.Command{
		Use: "set-rate MESSAGES", Short: "Change how fast an operation goes",
		Long:    "Change how many messages a second an operation changes, up to 100000.",
		Example: "  asyncmonolith operations set-rate 12 500 --yes --reason \"the provider allows it\"",
		Args: func(c *cobra.Command, args []string) (err error) {
			if err := takes(one("operation", "operations list"))(c, args[:min(len(args), 1)]); err != nil {
				return err
			}
			if len(args) != 2 {
				return usage(fmt.Errorf("say how many messages a second, and nothing more: see %s --help", c.CommandPath()))
			}
			if rate, err = strconv.Atoi(args[1]); err != nil || rate < 1 || rate > mostRate {
				return usage(fmt.Errorf("rate %q: 1 to %d messages a second are allowed", args[1], mostRate))
			}
			return nil
		},
	}, func(o ops.Operation) string { return fmt.Sprintf("%s; %d messages a second", how(o), o.Rate) }, func(s *ops.Session, ctx context.Context, reason string, id int64) (ops.Operation, error) {
		return s.Operations().SetRate(ctx, reason, id, rate)
	})
}

// mostRate is the most messages a second of an operation, as package ops has it.
const mostRate = 100_000

// decideAskedCommand is a decision that has more happen, and so is to be confirmed.
func (a *app) decideAskedCommand(c *cobra.Command, said func(ops.Operation) string, do func(*ops.Session, context.Context, string, int64) (ops.Operation, error)) *cobra.Command {
	return a.changing(a.operationCommand(c, func(ctx context.Context, session *ops.Session, id int64) error {
		if err := a.unconfirmed(); err != nil {
			o, failed := session.Operations().Get(ctx, id)
			return cmp.Or(a.operation(o, failed), err)
		}
		o, err := do(session, ctx, a.reason, id)
		if err == nil {
			a.untaken(ctx, session, o)
		}
		if err != nil || a.json {
			return a.operation(o, err)
		}
		return a.say("%s.", said(o))
	}))
}

func (a *app) watchCommand() *cobra.Command {
	return a.operationCommand(&cobra.Command{
		Use: "watch", Short: "Show how far an operation is until it is over",
		Long: `Show how far an operation is until it is over. It exits with 0 when all is done, and with 5 when only a part is.
Ctrl-C leaves the operation as it is.`,
		Example: "  asyncmonolith operations watch 12",
	}, func(ctx context.Context, session *ops.Session, id int64) error {
		return a.watch(ctx, session, id, false)
	})
}

func (a *app) runOperationCommand() *cobra.Command {
	return a.operationCommand(&cobra.Command{
		Use: "run", Short: "Carry out an operation from here, and show how far it is",
		Long: `Carry out an operation from here, unless another process does, and show how far it is until it is over. It exits
with 0 when all is done, and with 5 when only a part is. Ctrl-C leaves the operation as it is.`,
		Example: "  asyncmonolith operations run 12",
	}, func(ctx context.Context, session *ops.Session, id int64) error {
		return a.watch(ctx, session, id, true)
	})
}

// completeOperations completes ids of operations that are not over.
func (a *app) completeOperations(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completions(func(ctx context.Context, session *ops.Session) (names []string, err error) {
		o, err := session.Overview(ctx)
		for _, operation := range o.Operations {
			names = append(names, strconv.FormatInt(operation.ID, 10))
		}
		return names, err
	})
}
