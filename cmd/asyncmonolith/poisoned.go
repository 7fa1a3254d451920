package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

func poisonedGroup(a *app) *cobra.Command {
	return asGroup(&cobra.Command{
		Use:   "poisoned",
		Short: "List poisoned messages, by failure",
		Long: `List poisoned messages: in groups of equal failures, one by one, or all as JSON. asyncmonolith requeue and
asyncmonolith discard change them.`,
		Example: `  asyncmonolith poisoned groups --show-payloads
  asyncmonolith poisoned list --consumer mail --fingerprint 1f00ba5e1f00ba5e1
  asyncmonolith poisoned get 17 --show-payloads`,
	},
		(&poisonedGroups{app: a}).command(), (&poisonedList{app: a}).command(), (&poisonedGet{app: a}).command(),
		(&poisonedExport{app: a}).command())
}

type poisonedGroups struct {
	app      *app
	consumer string
	content  contentFlag
}

func (g *poisonedGroups) command() *cobra.Command {
	c := &cobra.Command{
		Use: "groups", Short: "Count poisoned messages by failure", Args: checkArgs(noArgs),
		Long: `Count poisoned messages by consumer and failure, the latest failure first, with the time and the release of the first.
--show-payloads adds the text of the last error.`,
		Example: "  asyncmonolith poisoned groups --consumer mail --show-payloads",
		RunE:    g.app.onSession(g.run, g.content.config),
	}
	c.Flags().Var(selecting{&g.consumer}, "consumer", "consumer")
	_ = c.RegisterFlagCompletionFunc("consumer", g.app.completeFlag(consumerNames))
	return g.content.add(c)
}

func (g *poisonedGroups) run(ctx context.Context, session *operator.Session, _ []string) error {
	groups, more, err := session.Poisoned().Groups(ctx, g.consumer)
	if err != nil {
		return err
	}
	if err := checkSpelling(ctx, session, g.consumer, len(groups)); err != nil {
		return err
	}
	if err := poisonGroups().write(g.app.output, groups, nil); err != nil {
		return err
	}
	g.content.withheld(g.app.output, slices.ContainsFunc(groups, func(g poison.Group) bool { return g.Failure != nil }))
	return noteMore(g.app.output, more, "There are more groups than are listed.")
}

func poisonGroups() list[poison.Group] {
	return list[poison.Group]{
		columns: []show.Column{{Title: "CONSUMER"}, {Title: "FINGERPRINT"}, {Title: "MESSAGES", Kind: show.Number},
			{Title: "FIRST", Kind: show.Whole, Gives: 3}, {Title: "LAST", Kind: show.Whole, Gives: 1},
			{Title: "SINCE", Gives: 4}, {Title: "ERROR TYPE", Gives: 2}},
		row: func(g poison.Group) []any {
			f := failureOf(g)
			return []any{g.Consumer, g.Fingerprint, count(int64(g.Messages)), g.FirstAt, g.LastAt, f.FirstVersion, f.ErrorType}
		},
		below: func(g poison.Group) []string { return []string{failureOf(g).Sample} },
		empty: "No message is poisoned.",
	}
}

// failureOf returns the failure group, or an empty one.
func failureOf(g poison.Group) admin.FailureGroup {
	if g.Failure == nil {
		return admin.FailureGroup{}
	}
	return *g.Failure
}

// poisonedRows lists poisoned messages with their failures.
func poisonedRows(failures []admin.FailureGroup) list[poison.Message] {
	return list[poison.Message]{
		columns: []show.Column{{Title: "ID", Kind: show.Number}, {Title: "CONSUMER"}, {Title: "PAYLOAD TYPE", Gives: 3},
			{Title: "FINGERPRINT"}, {Title: "POISONED", Kind: show.Whole}, {Title: "CREATED", Kind: show.Whole, Gives: 1},
			{Title: "ATTEMPTS", Kind: show.Number, Gives: 4}, {Title: "CRASHES", Kind: show.Number, Gives: 6},
			{Title: "KEY", Gives: 5}, {Title: "INSERT ID", Gives: 2}},
		row: func(m poison.Message) []any {
			return []any{m.ID, m.Consumer, m.PayloadType, m.Fingerprint, m.PoisonedAt, m.CreatedAt,
				count(int64(m.Attempts)), count(int64(m.Crashes)), m.OrderingKey, m.InsertID}
		},
		below: func(m poison.Message) []string { return []string{errorOf(m, failures)} },
		empty: "No poisoned message matches.",
	}
}

// errorOf returns what the messages of a failure group have in common: the text without the parts that
// differ, or the type of the error if the text is hidden. A message without a group has its reason.
func errorOf(m poison.Message, failures []admin.FailureGroup) string {
	i := slices.IndexFunc(failures, func(f admin.FailureGroup) bool {
		return f.Consumer == m.Consumer && f.Fingerprint == m.Fingerprint
	})
	if i < 0 {
		return m.Reason
	}
	return cmp.Or(operator.ErrorTemplate(failures[i].Sample), operator.ErrorKind(failures[i].ErrorType), m.Reason)
}

type poisonedList struct {
	app     *app
	filter  poisonFilter
	page    pageFlags
	content contentFlag
}

func (l *poisonedList) command() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List poisoned messages, the newest first", Args: checkArgs(noArgs),
		Long: `List poisoned messages, the newest first, with their error types. --show-payloads shows error texts instead, without
the parts that differ. poisoned get and poisoned groups show whole texts. --error and --trace-id read every message that
the other flags select: add --consumer if there are many.`,
		Example: `  asyncmonolith poisoned list --consumer mail --poisoned-after "2026-01-02 15:00:00"`,
		RunE:    l.app.onSession(l.run, l.content.config, l.filter.config),
	}
	l.filter.add(l.app, c)
	l.page.add(c)
	return l.content.add(c)
}

func (l *poisonedList) run(ctx context.Context, session *operator.Session, _ []string) error {
	filter := l.filter.get()
	found, next, err := session.Poisoned().List(ctx, filter, l.page.Page)
	if err != nil {
		return err
	}
	if err := checkSpelling(ctx, session, filter.Consumer, len(found)); err != nil {
		return err
	}
	l.content.withheld(l.app.output, len(found) > 0)
	return writePoisoned(ctx, l.app.output, session, filter.Consumer, found, next)
}

// writePoisoned writes poisoned messages of a consumer, or of several if it is empty.
func writePoisoned(
	ctx context.Context, o *output, session *operator.Session, consumer string, found []poison.Message, next *admin.Page,
) (err error) {
	var failures []admin.FailureGroup
	if len(found) > 0 && !o.json {
		if failures, err = session.Consumers().Failures(ctx, consumer, mostListed); err != nil {
			return err
		}
	}
	return poisonedRows(failures).write(o, found, next)
}

type poisonedGet struct {
	app     *app
	content contentFlag
}

func (g *poisonedGet) command() *cobra.Command {
	return g.content.add(&cobra.Command{
		Use: "get ID", Short: "Show one poisoned message", Args: checkArgs(exactlyOne("message", "poisoned list")),
		Long: "Show one poisoned message. --show-payloads adds up to 64 KiB of its payload, its headers, its reason and its error\n" +
			"texts.",
		Example: "  asyncmonolith poisoned get 17 --show-payloads",
		RunE:    g.app.onIDs(g.run, g.content.config),
	})
}

func (g *poisonedGet) run(ctx context.Context, session *operator.Session, ids []int64) error {
	m, err := session.Poisoned().Get(ctx, ids[0])
	if err != nil {
		return err
	}
	if g.app.json {
		return g.app.line(m)
	}
	pairs := []any{"id", m.ID, "message id", m.MessageID, "consumer", m.Consumer, "payload type", m.PayloadType,
		"fingerprint", m.Fingerprint, "reason", m.Reason, "poisoned", m.PoisonedAt, "created", m.CreatedAt,
		"attempts", m.Attempts, "crashes", m.Crashes, "insert id", m.InsertID, "key", m.OrderingKey, "payload bytes", m.PayloadBytes}
	g.content.withheld(g.app.output, len(m.Errors) > 0)
	return g.app.fields(append(pairs, contents(m.Headers, m.Payload, m.Errors, m.Steps)...)...)
}

type poisonedExport struct {
	app     *app
	filter  poisonFilter
	content contentFlag
	reason  string
}

func (e *poisonedExport) command() *cobra.Command {
	c := &cobra.Command{
		Use: "export --reason TEXT", Short: "Write poisoned messages as JSON, one per line", Args: checkArgs(noArgs),
		Long: `Write poisoned messages as JSON, one per line, in the order of their ids. --show-payloads adds payloads, headers and
errors. It changes nothing, but the audit records the export and its reason. asyncmonolith discard --exported FILE
deletes the messages in the file.`,
		Example: `  asyncmonolith poisoned export --consumer mail --show-payloads --reason "for the provider" > mail.ndjson`,
		PreRunE: func(*cobra.Command, []string) error {
			if e.reason == "" {
				return usage(errors.New("--reason is missing: the audit records exports"))
			}
			return nil
		},
		RunE: e.app.onSession(e.run, e.content.config, e.filter.config),
	}
	e.filter.add(e.app, c)
	e.content.add(c)
	c.Flags().StringVar(&e.reason, "reason", "", "reason, for the audit")
	return c
}

func (e *poisonedExport) run(ctx context.Context, session *operator.Session, _ []string) error {
	n, p := 0, e.app.progress()
	_, err := session.Poisoned().Export(ctx, e.reason, e.filter.get(), func(m operator.PoisonedMessage) error {
		n++
		p.show(fmt.Sprintf("%s written", plural(n, "message")))
		return e.app.line(m)
	})
	p.end()
	e.app.note("%s written.", plural(n, "message"))
	return err
}
