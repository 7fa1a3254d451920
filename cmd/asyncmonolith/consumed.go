package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func consumedGroup(a *app) *cobra.Command {
	return asGroup(&cobra.Command{
		Use:   "consumed",
		Short: "List consumed messages, and run them again",
		Long:  "List, show and repeat consumed messages. Only consumers with bus.Keep keep them, for a limited time.",
		Example: `  asyncmonolith consumed list --consumer mail --key order-17
  asyncmonolith consumed get 4711 --show-payloads
  asyncmonolith consumed repeat 4711 --yes --reason "the mail was lost"`,
	},
		(&consumedList{app: a}).command(), (&consumedGet{app: a}).command(), (&consumedRepeat{app: a}).command())
}

// consumedRows lists consumed messages.
func consumedRows() list[admin.ConsumedMessage] {
	return list[admin.ConsumedMessage]{
		columns: []show.Column{{Title: "ID", Kind: show.Number}, {Title: "CONSUMER"}, {Title: "PAYLOAD TYPE", Gives: 4},
			{Title: "OUTCOME", Kind: show.Whole}, {Title: "FINISHED", Kind: show.Whole}, {Title: "RUN TIME", Kind: show.Number, Gives: 1},
			{Title: "ATTEMPTS", Kind: show.Number, Gives: 3}, {Title: "VERSION", Gives: 2}, {Title: "KEY", Gives: 5}},
		row: func(m admin.ConsumedMessage) []any {
			return []any{m.ID, m.Consumer, m.PayloadType, m.Outcome, m.FinishedAt, runTime(m), count(int64(m.Attempts)), m.Version, m.OrderingKey}
		},
		below: func(m admin.ConsumedMessage) []string {
			if m.Reason == "" {
				return nil
			}
			return []string{"reason: " + m.Reason}
		},
		empty: "No consumed message matches. Only consumers with bus.Keep keep them.",
	}
}

// runTime shows how long the last run took, or "" if there was none.
func runTime(m admin.ConsumedMessage) string {
	if m.StartedAt.IsZero() {
		return ""
	}
	return m.RunTime.Round(time.Microsecond).String()
}

type consumedList struct {
	app           *app
	filter        admin.ConsumedFilter
	message       messageID
	after, before instant
	header        string // NAME=VALUE
	page          pageFlags
	content       contentFlag
}

func (l *consumedList) command() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List consumed messages, the newest first", Args: checkArgs(noArgs),
		Long: `List consumed messages, the newest first. --payload-type, --outcome, --version, --header and --trace-id compare
message by message: add --consumer if there are many. --show-payloads adds the reasons of discarded messages.`,
		Example: `  asyncmonolith consumed list --consumer mail --key order-17
  asyncmonolith consumed list --consumer mail --header tenant=acme --finished-after 2026-01-02`,
		RunE: l.app.onSession(l.run, l.content.config, l.config),
	}
	flags := c.Flags()
	flags.Var(selecting{&l.filter.Consumer}, "consumer", "consumer")
	flags.Var(selecting{&l.filter.PayloadType}, "payload-type", "payload type")
	flags.Var(selecting{&l.filter.OrderingKey}, "key", "ordering key")
	outcomes := []string{"done", "discarded", "expired"}
	flags.Var(choice{&l.filter.Outcome, outcomes}, "outcome", "outcome: "+strings.Join(outcomes, ", "))
	flags.Var(selecting{&l.filter.Version}, "version", "version of the program that consumed the message")
	flags.Var(&l.message, "message-id", "message id")
	flags.Var(selecting{&l.filter.TraceID}, "trace-id", "id of the trace that produced the message: 32 hexadecimal digits")
	flags.Var(selecting{&l.header}, "header", "header, as NAME=VALUE")
	flags.Var(&l.after, "finished-after", "finished after a time, in UTC")
	flags.Var(&l.before, "finished-before", "finished before a time, in UTC")
	_ = c.RegisterFlagCompletionFunc("consumer", l.app.completeFlag(consumerNames))
	_ = c.RegisterFlagCompletionFunc("version", l.app.completeFlag(programVersions))
	_ = c.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(outcomes, cobra.ShellCompDirectiveNoFileComp))
	l.page.add(c)
	c.PreRunE = func(*cobra.Command, []string) error { return l.check() }
	return l.content.add(c)
}

// programVersions are the versions of the programs that the overview shows.
func programVersions(ctx context.Context, session *operator.Session) (versions []string, err error) {
	o, err := session.Overview(ctx)
	for _, p := range o.Processes {
		if p.Version != "" && !slices.Contains(versions, p.Version) {
			versions = append(versions, p.Version)
		}
	}
	return versions, err
}

// check parses and checks the flags.
func (l *consumedList) check() error {
	l.filter.MessageID, l.filter.FinishedAfter, l.filter.FinishedBefore = l.message.UUID, l.after.Time, l.before.Time
	if l.header != "" {
		name, value, ok := strings.Cut(l.header, "=")
		if !ok {
			return usage(fmt.Errorf("--header %q: NAME=VALUE is allowed", l.header))
		}
		l.filter.Header, l.filter.Value = name, value
	}
	return l.page.check()
}

// config is a setting of the session. It allows the search for --header.
func (l *consumedList) config(c *ops.Config) {
	if c.Redact == nil && l.header != "" {
		c.Redact = searched("", map[string]string{l.filter.Header: l.filter.Value})
	}
}

func (l *consumedList) run(ctx context.Context, session *operator.Session, _ []string) error {
	found, next, err := l.find(ctx, session)
	if err != nil {
		return err
	}
	if err := checkSpelling(ctx, session, l.filter.Consumer, len(found)); err != nil {
		return err
	}
	return consumedRows().write(l.app.output, found, next)
}

// find reads pages until it has a full one, or reaches the end. Pages can be empty if matches are rare.
func (l *consumedList) find(ctx context.Context, session *operator.Session) (found []admin.ConsumedMessage, next *admin.Page, err error) {
	page, p := l.page.Page, l.app.progress()
	defer p.end()
	for pages := 1; ; pages++ {
		page.Size = l.page.Size - len(found)
		part, next, err := session.Consumed().List(ctx, l.filter, page)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, part...)
		if next == nil || len(found) >= l.page.Size {
			return found, next, nil
		}
		p.show(fmt.Sprintf("read %d pages, found %d", pages, len(found)))
		page = *next
	}
}

type consumedGet struct {
	app     *app
	content contentFlag
}

func (g *consumedGet) command() *cobra.Command {
	return g.content.add(&cobra.Command{
		Use: "get ID", Short: "Show one consumed message", Args: checkArgs(exactlyOne("message", "consumed list")),
		Long: "Show one consumed message. --show-payloads adds up to 64 KiB of its payload, if that was kept, its headers and " +
			"its reason.",
		Example: "  asyncmonolith consumed get 4711 --show-payloads",
		RunE:    g.app.onIDs(g.run, g.content.config),
	})
}

func (g *consumedGet) run(ctx context.Context, session *operator.Session, ids []int64) error {
	m, err := session.Consumed().Get(ctx, ids[0])
	if errors.Is(err, admin.ErrNotFound) {
		return fmt.Errorf("%w: no consumed message with the id %d is kept", errNotFound, ids[0])
	}
	if err != nil {
		return err
	}
	if g.app.json {
		return g.app.line(m)
	}
	pairs := []any{"id", m.ID, "message id", m.MessageID, "consumer", m.Consumer, "payload type", m.PayloadType, "outcome", m.Outcome,
		"reason", m.Reason, "attempts", m.Attempts, "version", m.Version, "created", m.CreatedAt, "started", m.StartedAt,
		"run time", runTime(m.ConsumedMessage), "finished", m.FinishedAt, "kept until", m.ExpiresAt, "key", m.OrderingKey,
		"payload kept", m.PayloadKept, "payload bytes", m.PayloadBytes}
	return g.app.fields(append(pairs, contents(m.Headers, m.Payload, nil, nil)...)...)
}

type consumedRepeat struct {
	app *app
	confirmation
}

func (r *consumedRepeat) command() *cobra.Command {
	return r.confirmed(&cobra.Command{
		Use: "repeat ID...", Short: "Produce consumed messages again", Args: checkArgs(atLeastOne("message", "consumed list")),
		Long: `Produce consumed messages again, each for the consumer that consumed it, with a new message id. The header
asyncmonolith-repeats has the old id. Their consumers need bus.KeepPayload. All messages are produced, or none.`,
		Example: `  asyncmonolith consumed repeat 4711 --yes --reason "the mail was lost"`,
		RunE:    r.app.onIDs(r.run),
	})
}

func (r *consumedRepeat) run(ctx context.Context, session *operator.Session, ids []int64) error {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	found, err := session.Consumed().ListByID(ctx, ids...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !slices.ContainsFunc(found, func(m admin.ConsumedMessage) bool { return m.ID == id }) {
			return fmt.Errorf("%w: no consumed message with the id %d is kept", errNotFound, id)
		}
	}
	if err := r.unconfirmed(); err != nil {
		if err := consumedRows().write(r.app.output, found, nil); err != nil || r.app.json {
			return errors.Join(err, r.unconfirmed())
		}
		return errors.Join(r.app.say("%s would be produced again.", plural(len(found), "message")), err)
	}
	repeated, err := session.Consumed().Repeat(ctx, r.reason, ids...)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s produced again.", plural(len(repeated), "message"))
	if len(repeated) == 1 {
		text = fmt.Sprintf("1 message produced again: its message id is %s.", repeated[0])
	}
	return r.app.result(map[string]any{"repeated": len(repeated), "message_ids": repeated}, text, nil)
}
