package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

func (a *app) poisonedCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "poisoned",
		Short: "List poisoned messages, by what failed",
		Long: `List messages that have failed for good: in groups of those that failed in the same way, one by one, or all of
them as JSON. asyncmonolith requeue and asyncmonolith discard change them.`,
		Example: `  asyncmonolith poisoned groups --show-payloads
  asyncmonolith poisoned list --consumer mail --fingerprint 1f00ba5e1f00ba5e1
  asyncmonolith poisoned get 17 --show-payloads`,
	}
	root.AddCommand(a.groupsCommand(), a.listPoisonedCommand(), a.getPoisonedCommand(), a.exportCommand())
	return asGroup(root)
}

func (a *app) groupsCommand() *cobra.Command {
	consumer := ""
	c := &cobra.Command{
		Use: "groups", Short: "Count poisoned messages by what failed", Args: takes(nothing),
		Long: `Count poisoned messages by consumer and by what failed, those first that failed last: since when, and which
version of the program met it first. With --show-payloads there is the text of the last error.`,
		Example: "  asyncmonolith poisoned groups --consumer mail --show-payloads",
		RunE: func(c *cobra.Command, _ []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			groups, more, err := session.Poisoned().Groups(c.Context(), consumer)
			if err != nil {
				return err
			}
			if len(groups) == 0 {
				if err := a.mistyped(c.Context(), session, consumer); err != nil {
					return err
				}
			}
			if err := poisonGroups().write(a, groups, nil); err != nil {
				return err
			}
			a.withheld(slices.ContainsFunc(groups, func(g poison.Group) bool { return g.Failure != nil }))
			if !more {
				return nil
			}
			a.note("There are more groups than are listed.")
			return nil
		},
	}
	c.Flags().StringVar(&consumer, "consumer", "", "those of a consumer")
	_ = c.RegisterFlagCompletionFunc("consumer", a.consumerFlag)
	a.contentFlag(c)
	return c
}

func poisonGroups() list[poison.Group] {
	return list[poison.Group]{
		columns: []show.Column{{Title: "CONSUMER"}, {Title: "FINGERPRINT"}, {Title: "MESSAGES", Kind: show.Number}, {Title: "FIRST", Kind: show.Whole, Gives: 3}, {Title: "LAST", Kind: show.Whole, Gives: 1}, {Title: "SINCE", Gives: 4}, {Title: "ERROR TYPE", Gives: 2}},
		row: func(g poison.Group) []any {
			f := failureOf(g)
			return []any{g.Consumer, g.Fingerprint, count(int64(g.Messages)), g.FirstAt, g.LastAt, f.FirstVersion, f.ErrorType}
		},
		below: func(g poison.Group) []string { return []string{failureOf(g).Sample} },
		empty: "No message is poisoned.",
	}
}

// failureOf is what is known of how a group failed.
func failureOf(g poison.Group) admin.FailureGroup {
	if g.Failure == nil {
		return admin.FailureGroup{}
	}
	return *g.Failure
}

// poisonedRows is how poisoned messages are listed.
func poisonedRows() list[poison.Message] {
	return list[poison.Message]{
		columns: []show.Column{{Title: "ID", Kind: show.Number}, {Title: "CONSUMER"}, {Title: "PAYLOAD TYPE", Gives: 3}, {Title: "FINGERPRINT"}, {Title: "POISONED", Kind: show.Whole}, {Title: "CREATED", Kind: show.Whole, Gives: 1},
			{Title: "ATTEMPTS", Kind: show.Number, Gives: 4}, {Title: "CRASHES", Kind: show.Number, Gives: 6}, {Title: "KEY", Gives: 5}, {Title: "INSERT ID", Gives: 2}},
		row: func(m poison.Message) []any {
			return []any{m.ID, m.Consumer, m.PayloadType, m.Fingerprint, m.PoisonedAt, m.CreatedAt, count(int64(m.Attempts)), count(int64(m.Crashes)), m.OrderingKey, m.InsertID}
		},
		below: func(m poison.Message) []string {
			if m.Reason == "" {
				return nil
			}
			return []string{"reason: " + m.Reason}
		},
		empty: "No poisoned message matches.",
	}
}

func (a *app) listPoisonedCommand() *cobra.Command {
	var filter poisonFilter
	var page admin.Page
	c := &cobra.Command{
		Use: "list", Short: "List poisoned messages, the newest first", Args: takes(nothing),
		Long: `List poisoned messages, the newest first. With --show-payloads there is the reason, which may quote the error;
its whole text is in "poisoned get" and "poisoned groups".
--error looks into every message that the other flags select: give --consumer, too, where there are many.`,
		Example: `  asyncmonolith poisoned list --consumer mail --poisoned-after "2026-01-02 15:00:00"`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkPage(page); err != nil {
				return err
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			f, _ := filter.get()
			found, next, err := session.Poisoned().List(c.Context(), f, page)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				if err := a.mistyped(c.Context(), session, f.Consumer); err != nil {
					return err
				}
			}
			return poisonedRows().write(a, found, next)
		},
	}
	filter.flags(a, c)
	pageFlags(c, &page)
	a.contentFlag(c)
	return c
}

func (a *app) getPoisonedCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get ID", Short: "Show one poisoned message", Args: takes(one("message", "poisoned list")),
		Long:    "Show one poisoned message. Its payload, up to 64 KiB of it, its headers, its reason and the texts of its errors are shown with --show-payloads.",
		Example: "  asyncmonolith poisoned get 17 --show-payloads",
		RunE: func(c *cobra.Command, args []string) error {
			named, err := ids(args)
			if err != nil {
				return err
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			m, err := session.Poisoned().Get(c.Context(), named[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.line(m)
			}
			pairs := []any{"id", m.ID, "message id", m.MessageID, "consumer", m.Consumer, "payload type", m.PayloadType, "fingerprint", m.Fingerprint, "reason", m.Reason, "poisoned", m.PoisonedAt,
				"created", m.CreatedAt, "attempts", m.Attempts, "crashes", m.Crashes, "insert id", m.InsertID, "key", m.OrderingKey, "payload bytes", m.PayloadBytes}
			a.withheld(len(m.Errors) > 0)
			return a.fields(append(pairs, contents(m.Headers, m.Payload, m.Errors)...)...)
		},
	}
	a.contentFlag(c)
	return c
}

func (a *app) exportCommand() *cobra.Command {
	var filter poisonFilter
	c := &cobra.Command{
		Use: "export --reason TEXT", Short: "Write poisoned messages as JSON, one in each line", Args: takes(nothing),
		Long: `Write poisoned messages as JSON, one in each line, in the order of their ids. With --show-payloads each has its
payload, headers and errors. It changes nothing, but stands in the audit, with the reason.
asyncmonolith discard --exported FILE deletes what is in the file.`,
		Example: `  asyncmonolith poisoned export --consumer mail --show-payloads --reason "for the provider" > mail.ndjson`,
		RunE: func(c *cobra.Command, _ []string) error {
			if a.reason == "" {
				return usage(errors.New("--reason is missing: an export stands in the audit"))
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			f, _ := filter.get()
			n, p := 0, a.progress()
			_, err = session.Poisoned().Export(c.Context(), a.reason, f, func(m ops.Poisoned) error {
				n++
				p.show(fmt.Sprintf("%s written", messages(n)))
				return a.line(m)
			})
			p.end()
			a.note("%s written.", messages(n))
			return err
		},
	}
	filter.flags(a, c)
	a.contentFlag(c)
	c.Flags().StringVar(&a.reason, "reason", "", "why, for the audit")
	return c
}
