package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func operationsGroup(a *app) *cobra.Command {
	return asGroup(&cobra.Command{
		Use:   "operations",
		Short: "List changes, and undo, stop or watch operations",
		Long: `List the audit of changes. Operations change many messages: they can be undone until they start, and stopped later.
undo and stop need neither --yes nor --reason.`,
		Example: `  asyncmonolith operations list
  asyncmonolith operations undo 12
  asyncmonolith operations set-rate 12 500 --yes --reason "the provider allows it"
  asyncmonolith operations run 12`,
	},
		(&operationsList{app: a}).command(), (&operationGet{app: a}).command(), undoCommand(a), stopCommand(a),
		resumeOperationCommand(a), setRateCommand(a), watchCommand(a), runOperationCommand(a))
}

type operationsList struct {
	app     *app
	page    pageFlags
	content contentFlag
}

func (l *operationsList) command() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List changes, the newest first", Args: checkArgs(noArgs),
		Long:    "List changes, the newest first. They are kept for 90 days.",
		Example: "  asyncmonolith operations list --limit 20",
		RunE:    l.app.onSession(l.run, l.content.config),
	}
	l.page.add(c)
	return l.content.add(c)
}

func (l *operationsList) run(ctx context.Context, session *operator.Session, _ []string) error {
	found, next, err := session.Operations().List(ctx, l.page.Page)
	if err != nil {
		return err
	}
	return operations().write(l.app.output, found, next)
}

func operations() list[ops.Operation] {
	return list[ops.Operation]{
		columns: []show.Column{{Title: "OPERATION", Kind: show.Number}, {Title: "ACTION"}, {Title: "STATE"},
			{Title: "CHANGED", Kind: show.Number}, {Title: "SKIPPED", Kind: show.Number, Gives: 3},
			{Title: "CREATED", Kind: show.Whole, Gives: 5}, {Title: "FINISHED", Kind: show.Whole, Gives: 2},
			{Title: "BY", Gives: 4}, {Title: "TARGET", Gives: 1}},
		row: func(o ops.Operation) []any {
			return []any{o.ID, o.Action, o.State, changedOf(o), count(o.Skipped), o.CreatedAt, o.FinishedAt, o.Actor, targetText(o.Target)}
		},
		below: func(o ops.Operation) []string { return []string{o.Reason, o.Note} },
		empty: "No change was made.",
	}
}

// changedOf shows how many messages an operation has changed, of how many.
func changedOf(o ops.Operation) string {
	if o.Preview != nil && o.Preview.Messages > 0 {
		return fmt.Sprintf("%d of %d", o.Changed, o.Preview.Messages)
	}
	return count(o.Changed)
}

type operationGet struct {
	app     *app
	content contentFlag
}

func (g *operationGet) command() *cobra.Command {
	return g.content.add(oneOperation(g.app, &cobra.Command{
		Use: "get ID", Short: "Show one operation",
		Long:    "Show one operation: its target, author, reason and progress. --show-payloads adds error texts.",
		Example: "  asyncmonolith operations get 12",
		RunE:    g.app.onIDs(g.run, g.content.config),
	}))
}

// oneOperation makes c take the id of an operation.
func oneOperation(a *app, c *cobra.Command) *cobra.Command {
	if c.Args == nil {
		c.Args = checkArgs(exactlyOne("operation", "operations list"))
	}
	c.ValidArgsFunction = a.completeArg(openOperations)
	return c
}

func (g *operationGet) run(ctx context.Context, session *operator.Session, ids []int64) error {
	o, err := session.Operations().Get(ctx, ids[0])
	if err != nil {
		return err
	}
	if g.app.json {
		return g.app.line(o)
	}
	pairs := []any{"id", o.ID, "action", o.Action, "state", o.State, "note", o.Note, "by", o.Actor, "reason", o.Reason,
		"target", targetText(o.Target), "changed", o.Changed, "skipped", o.Skipped}
	if o.Preview != nil && o.Preview.Messages > 0 {
		matched := fmt.Sprint(o.Preview.Messages)
		if o.Preview.More {
			matched = "at least " + matched
		}
		pairs = append(pairs, "matched", matched)
	}
	pairs = append(pairs, "rate", o.Rate, "canary", o.Canary, "created", o.CreatedAt, "starts", o.StartsAt, "finished", o.FinishedAt)
	return g.app.fields(pairs...)
}

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
		add("trace id", f.TraceID)
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
	add("expression", t.Expression)
	add("zone", t.Zone)
	add("old expression", t.OldExpression)
	add("old zone", t.OldZone)
	add("projection", t.Projection)
	add("version", t.Version)
	return strings.Join(parts, ", ")
}

// operationWatch is the commands watch and run.
type operationWatch struct {
	app  *app
	here bool // this process runs the operation
}

func watchCommand(a *app) *cobra.Command {
	w := &operationWatch{app: a}
	return oneOperation(a, &cobra.Command{
		Use: "watch ID", Short: "Show the progress of an operation until it ends",
		Long: `Show the progress of an operation until it ends. The exit code is 0 if it is done, and 5 if only a part is. Ctrl-C
does not stop the operation.`,
		Example: "  asyncmonolith operations watch 12",
		RunE:    a.onIDs(w.run),
	})
}

func runOperationCommand(a *app) *cobra.Command {
	w := &operationWatch{app: a, here: true}
	return oneOperation(a, &cobra.Command{
		Use: "run ID", Short: "Run an operation from here, and show its progress",
		Long: `Run an operation from here, unless another process does, and show its progress until it ends. The exit code is 0 if it
is done, and 5 if only a part is. After Ctrl-C another process can continue it.`,
		Example: "  asyncmonolith operations run 12",
		RunE:    a.onIDs(w.run),
	})
}

func (w *operationWatch) run(ctx context.Context, session *operator.Session, ids []int64) error {
	return newOperationReport(w.app, session).watch(ctx, ids[0], w.here)
}

// openOperations completes the ids of unfinished operations.
func openOperations(ctx context.Context, session *operator.Session) (ids []string, err error) {
	o, err := session.Overview(ctx)
	for _, operation := range o.Operations {
		ids = append(ids, strconv.FormatInt(operation.ID, 10))
	}
	return ids, err
}
