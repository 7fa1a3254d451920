package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

func messagesGroup(a *app) *cobra.Command {
	return asGroup(&cobra.Command{
		Use:   "messages",
		Short: "List pending messages, and cancel, reschedule or run them",
		Long: `List pending messages, show one, and cancel, reschedule or run them now. For poisoned messages use
asyncmonolith poisoned.`,
		Example: `  asyncmonolith messages list --consumer mail --retrying
  asyncmonolith messages get 4711 --show-payloads
  asyncmonolith messages run-now 4711 4712 --yes --reason "the provider is back"`,
	},
		(&messagesList{app: a}).command(), (&messagesGet{app: a}).command(), (&messagesFind{app: a}).command(),
		(&blockedKeys{app: a}).command(), cancelCommand(a), rescheduleCommand(a), runNowCommand(a))
}

// pending lists pending messages.
func pending(empty string) list[admin.Message] {
	return list[admin.Message]{
		columns: []show.Column{{Title: "ID", Kind: show.Number}, {Title: "CONSUMER"}, {Title: "PAYLOAD TYPE", Gives: 3},
			{Title: "STATE", Kind: show.Whole}, {Title: "DUE", Kind: show.Whole}, {Title: "CREATED", Kind: show.Whole, Gives: 1},
			{Title: "ATTEMPTS", Kind: show.Number, Gives: 6}, {Title: "CRASHES", Kind: show.Number, Gives: 5},
			{Title: "KEY", Gives: 4}, {Title: "INSERT ID", Gives: 2}},
		row: func(m admin.Message) []any {
			return []any{m.ID, m.Consumer, m.PayloadType, m.State, m.AvailableAt, m.CreatedAt,
				count(int64(m.Attempts)), count(int64(m.Crashes)), m.OrderingKey, m.InsertID}
		},
		empty: empty,
	}
}

type messagesList struct {
	app    *app
	filter pendingFilter
	page   pageFlags
}

func (l *messagesList) command() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List pending messages", Args: checkArgs(noArgs),
		Long: `List pending messages by consumer and payload type, in the order in which they are due. --consumer, --insert-id, and
--key with --consumer use an index. Other filters read every message, which takes a while with millions.`,
		Example: `  asyncmonolith messages list --consumer mail --state ready --limit 10
  asyncmonolith messages list --crashed
  asyncmonolith messages list --older-than 1h --json`,
		RunE: l.app.onSession(l.run),
	}
	l.filter.add(l.app, c)
	return l.page.add(c)
}

func (l *messagesList) run(ctx context.Context, session *operator.Session, _ []string) error {
	filter := l.filter.get()
	found, next, err := l.find(ctx, session, filter)
	if err != nil {
		return err
	}
	if err := checkSpelling(ctx, session, filter.Consumer, len(found)); err != nil {
		return err
	}
	return pending("No pending message matches.").write(l.app.output, found, next)
}

// find reads pages until it has a full one, or reaches the end. Pages can be empty if matches are rare.
func (l *messagesList) find(
	ctx context.Context, session *operator.Session, filter admin.Filter,
) (found []admin.Message, next *admin.Page, err error) {
	page, p := l.page.Page, l.app.progress()
	defer p.end()
	for pages := 1; ; pages++ {
		page.Size = l.page.Size - len(found)
		part, next, err := session.Messages().List(ctx, filter, page)
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

// blockedKeys is "messages blocked-keys".
type blockedKeys struct {
	app  *app
	page pageFlags
}

func (k *blockedKeys) command() *cobra.Command {
	return k.page.addLimit(&cobra.Command{
		Use: "blocked-keys", Short: "List keys that a poisoned message blocks", Args: checkArgs(noArgs),
		Long: `List keys whose messages wait until a poisoned one is requeued or discarded, the longest wait first. Counts stop at
10,000.`,
		Example: "  asyncmonolith messages blocked-keys\n  asyncmonolith messages list --consumer ship --key order-17",
		RunE:    k.app.onSession(k.run),
	})
}

func (k *blockedKeys) run(ctx context.Context, session *operator.Session, _ []string) error {
	found, err := session.Consumers().BlockedKeys(ctx, "", min(k.page.Size+1, mostListed))
	if err != nil {
		return err
	}
	more := len(found) > k.page.Size || len(found) == mostListed
	err = list[operator.BlockedKey]{
		columns: []show.Column{{Title: "CONSUMER"}, {Title: "KEY"}, {Title: "WAITING", Kind: show.Number},
			{Title: "SINCE", Kind: show.Whole}, {Title: "POISONED", Kind: show.Number}},
		row: func(b operator.BlockedKey) []any {
			return []any{b.Consumer, b.Key, count(b.Waiting), b.Since, b.Poisoned}
		},
		empty: "No key is blocked.",
	}.write(k.app.output, found[:min(len(found), k.page.Size)], nil)
	return errors.Join(err, noteMore(k.app.output, more, "More keys may be blocked: raise --limit."))
}

type messagesGet struct {
	app     *app
	content contentFlag
}

func (g *messagesGet) command() *cobra.Command {
	return g.content.add(&cobra.Command{
		Use: "get ID", Short: "Show one pending message", Args: checkArgs(exactlyOne("message", "messages list")),
		Long:    "Show one pending message. --show-payloads adds up to 64 KiB of its payload, its headers and its error texts.",
		Example: "  asyncmonolith messages get 4711 --show-payloads",
		RunE:    g.app.onIDs(g.run, g.content.config),
	})
}

func (g *messagesGet) run(ctx context.Context, session *operator.Session, ids []int64) error {
	m, err := session.Messages().Get(ctx, ids[0])
	if errors.Is(err, admin.ErrNotFound) {
		return fmt.Errorf("%w: asyncmonolith explain %d also finds poisoned and kept ones", err, ids[0])
	}
	if err != nil {
		return err
	}
	if g.app.json {
		return g.app.line(m)
	}
	pairs := []any{"id", m.ID, "message id", m.MessageID, "consumer", m.Consumer, "payload type", m.PayloadType, "state", m.State,
		"due", m.AvailableAt, "created", m.CreatedAt, "attempts", m.Attempts, "crashes", m.Crashes, "insert id", m.InsertID,
		"key", m.OrderingKey, "payload bytes", m.PayloadBytes}
	if m.Group != "" {
		pairs = append(pairs, "group", m.Group)
	}
	if m.Claim != nil {
		pairs = append(pairs, "claimed by", m.Claim.Owner, "claimed", m.Claim.ClaimedAt, "leased until", m.Claim.LeasedUntil)
	}
	g.content.withheld(g.app.output, len(m.Errors) > 0)
	return g.app.fields(append(pairs, contents(m.Headers, m.Payload, m.Errors, m.Steps)...)...)
}

// contents returns fields: the failed runs of a message, its steps with results, its headers and its payload.
func contents(headers map[string]string, payload []byte, errors []admin.Attempt, steps []admin.Step) (pairs []any) {
	for _, attempt := range errors {
		pairs = append(pairs, fmt.Sprintf("failed run %d", attempt.Attempt), strings.TrimSpace(show.Value(attempt.At)+" "+attempt.Error))
	}
	for _, s := range steps {
		pairs = append(pairs, "step "+s.Name, fmt.Sprintf("%s run %d, %s", show.Value(s.StartedAt), s.Attempt, s.Took.Round(time.Millisecond)))
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		pairs = append(pairs, "header", name+": "+headers[name])
	}
	return append(pairs, "payload", string(payload))
}
