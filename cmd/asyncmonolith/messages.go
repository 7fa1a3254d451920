package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func (a *app) messagesCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "messages",
		Short: "List pending messages, and cancel, reschedule or run them",
		Long: `List messages that wait or run, show one, and cancel, reschedule or run them now. Those that are poisoned are
those of asyncmonolith poisoned.`,
		Example: `  asyncmonolith messages list --consumer mail --retrying
  asyncmonolith messages get 4711 --show-payloads
  asyncmonolith messages run-now 4711 4712 --yes --reason "the provider is back"`,
	}
	root.AddCommand(a.listMessagesCommand(), a.getMessageCommand(), a.findCommand(), a.keysCommand(), a.cancelCommand(), a.rescheduleCommand(), a.runNowCommand())
	return asGroup(root)
}

// pending is how pending messages are listed.
func pending(empty string) list[admin.Message] {
	return list[admin.Message]{
		columns: []show.Column{{Title: "ID", Kind: show.Number}, {Title: "CONSUMER"}, {Title: "PAYLOAD TYPE", Gives: 3}, {Title: "STATE", Kind: show.Whole}, {Title: "DUE", Kind: show.Whole}, {Title: "CREATED", Kind: show.Whole, Gives: 1},
			{Title: "ATTEMPTS", Kind: show.Number, Gives: 6}, {Title: "CRASHES", Kind: show.Number, Gives: 5}, {Title: "KEY", Gives: 4}, {Title: "INSERT ID", Gives: 2}},
		row: func(m admin.Message) []any {
			return []any{m.ID, m.Consumer, m.PayloadType, m.State, m.AvailableAt, m.CreatedAt, count(int64(m.Attempts)), count(int64(m.Crashes)), m.OrderingKey, m.InsertID}
		},
		empty: empty,
	}
}

func (a *app) listMessagesCommand() *cobra.Command {
	var filter pendingFilter
	var page admin.Page
	c := &cobra.Command{
		Use: "list", Short: "List pending messages", Args: takes(nothing),
		Long: `List pending messages, by consumer and payload type, and for each of these in the order in which they are
due. It reads an index for --consumer, for --insert-id, and for --key with --consumer; what else is asked for is looked for message by
message, which takes a while in millions.`,
		Example: `  asyncmonolith messages list --consumer mail --state ready --limit 10
  asyncmonolith messages list --crashed
  asyncmonolith messages list --older-than 1h --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkPage(page); err != nil {
				return err
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			f, _ := filter.get()
			found, next, err := a.find(c.Context(), session, f, page)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				if err := a.mistyped(c.Context(), session, f.Consumer); err != nil {
					return err
				}
			}
			return pending("No pending message matches.").write(a, found, next)
		},
	}
	filter.flags(a, c)
	pageFlags(c, &page)
	return c
}

// find reads pages until one is full, or nothing is left: where what is looked for is rare, pages are
// empty for a while.
func (a *app) find(ctx context.Context, session *ops.Session, filter admin.Filter, page admin.Page) (found []admin.Message, next *admin.Page, err error) {
	size, p := page.Size, a.progress()
	defer p.end()
	for pages := 1; ; pages++ {
		page.Size = size - len(found)
		part, next, err := session.Messages().List(ctx, filter, page)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, part...)
		if next == nil || len(found) >= size {
			return found, next, nil
		}
		p.show(fmt.Sprintf("looked at %d pages, found %d", pages, len(found)))
		page = *next
	}
}

func (a *app) keysCommand() *cobra.Command {
	most := 0
	c := &cobra.Command{
		Use: "blocked-keys", Short: "List keys that a poisoned message blocks", Args: takes(nothing),
		Long: `List keys whose messages wait until a poisoned one is requeued or discarded, those first that have waited
for the longest. Counts stop at 10,000.`,
		Example: "  asyncmonolith messages blocked-keys\n  asyncmonolith messages list --consumer ship --key order-17",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkPage(admin.Page{Size: most}); err != nil {
				return err
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			found, err := session.Consumers().BlockedKeys(c.Context(), most)
			if err != nil {
				return err
			}
			return list[admin.BlockedKey]{
				columns: []show.Column{{Title: "CONSUMER"}, {Title: "KEY"}, {Title: "WAITING", Kind: show.Number}, {Title: "SINCE", Kind: show.Whole}, {Title: "POISONED", Kind: show.Number}},
				row: func(k admin.BlockedKey) []any {
					return []any{k.Consumer, k.Key, count(k.Waiting), k.Since, k.Poisoned}
				},
				empty: "No key is parked.",
			}.write(a, found, nil)
		},
	}
	c.Flags().IntVar(&most, "limit", 50, "most rows, up to 1000")
	return c
}

func (a *app) getMessageCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get ID", Short: "Show one pending message", Args: takes(one("message", "messages list")),
		Long:    "Show one pending message. Its payload, up to 64 KiB of it, its headers and the texts of its errors are shown with --show-payloads.",
		Example: "  asyncmonolith messages get 4711 --show-payloads",
		RunE: func(c *cobra.Command, args []string) error {
			named, err := ids(args)
			if err != nil {
				return err
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			m, err := session.Messages().Get(c.Context(), named[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.line(m)
			}
			pairs := []any{"id", m.ID, "message id", m.MessageID, "consumer", m.Consumer, "payload type", m.PayloadType, "state", m.State, "due", m.AvailableAt, "created", m.CreatedAt,
				"attempts", m.Attempts, "crashes", m.Crashes, "insert id", m.InsertID, "key", m.OrderingKey, "payload bytes", m.PayloadBytes}
			if m.Claim != nil {
				pairs = append(pairs, "claimed by", m.Claim.Owner, "claimed", m.Claim.ClaimedAt, "leased until", m.Claim.LeasedUntil)
			}
			a.withheld(len(m.Errors) > 0)
			return a.fields(append(pairs, contents(m.Headers, m.Payload, m.Errors)...)...)
		},
	}
	a.contentFlag(c)
	return c
}

func (a *app) contentFlag(c *cobra.Command) {
	c.Flags().BoolVar(&a.content, "show-payloads", false, "show payloads, headers and texts of errors")
}

// withheld says once, for people, that texts of errors are left out, if there are some.
func (a *app) withheld(some bool) {
	if some && !a.content && !a.json {
		a.note("Texts of errors are shown with --show-payloads.")
	}
}

// contents are what a message carries, and its failed runs.
func contents(headers map[string]string, payload []byte, errors []admin.Attempt) (pairs []any) {
	for _, attempt := range errors {
		pairs = append(pairs, fmt.Sprintf("failed run %d", attempt.Attempt), strings.TrimSpace(show.Value(attempt.At)+" "+attempt.Error))
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		pairs = append(pairs, "header", name+": "+headers[name])
	}
	return append(pairs, "payload", string(payload))
}
