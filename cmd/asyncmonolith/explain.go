package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

type explainCommand struct {
	app           *app
	consumer, key string
}

func (e *explainCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use: "explain [ID...]", Short: "Explain why messages do not run", Args: checkArgs(e.checkArgs),
		Long: `Explain why messages do not run, from the database and the reports of live processes. ID is a row's id, a message id or
a trace id. The rows of all consumers of a message share its message id. Trace ids are not indexed: the command then reads all
messages and shows its progress. --key explains the first messages of a key.`,
		Example: `  asyncmonolith explain 4711
  asyncmonolith explain 0199f1a2-7c3d-7abc-8def-0123456789ab
  asyncmonolith explain --consumer mail --key customer-17`,
		RunE: e.app.onSession(e.run),
	}
	c.Flags().Var(selecting{&e.key}, "key", "ordering key: explain its first messages")
	c.Flags().Var(selecting{&e.consumer}, "consumer", "consumer, with --key")
	_ = c.RegisterFlagCompletionFunc("consumer", e.app.completeFlag(consumerNames))
	return c
}

func (e *explainCommand) checkArgs(c *cobra.Command, args []string) error {
	switch {
	case e.key != "" && len(args) > 0:
		return errors.New("ids and --key are both given: use one")
	case e.key == "" && e.consumer != "":
		return errors.New("--consumer needs --key")
	case e.key == "":
		return atLeastOne("message", "messages list")(c, args)
	default:
		return nil
	}
}

// mostOfKey is how many messages of a key are explained: the others wait for these. It also limits the
// messages of a message id or a trace, in each state.
const mostOfKey = 10

func (e *explainCommand) run(ctx context.Context, session *operator.Session, args []string) error {
	var ids []int64
	for _, arg := range args {
		found, err := e.idsOf(ctx, session, arg)
		if err != nil {
			return err
		}
		ids = append(ids, found...)
	}
	if e.key != "" {
		filter := admin.Filter{Consumer: e.consumer, OrderingKey: e.key}
		found, _, err := session.Messages().List(ctx, filter, admin.Page{Size: mostOfKey})
		if err != nil {
			return err
		}
		for _, m := range found {
			ids = append(ids, m.ID)
		}
		if len(ids) == 0 {
			return fmt.Errorf("%w: no pending message has the key %q", errNotFound, e.key)
		}
	}
	return e.explain(ctx, session, ids)
}

// idsOf returns the messages that an argument names: by their id, by the id of their payload, or by their trace.
func (e *explainCommand) idsOf(ctx context.Context, session *operator.Session, arg string) (ids []int64, err error) {
	id, failed := strconv.ParseInt(arg, 10, 64)
	if failed == nil && len(arg) < 20 {
		return []int64{id}, nil
	}
	filter := poison.Filter{}
	message, failed := uuid.Parse(arg)
	switch {
	case failed == nil && len(arg) == 36 && message != uuid.Nil:
		filter.MessageID = message
	case len(arg) == 32 && strings.Trim(arg, "0123456789abcdef") == "":
		filter.TraceID = arg
	default:
		return nil, usage(fmt.Errorf("%q: a row's id, a message id or a trace id is allowed", arg))
	}
	return e.search(ctx, session, arg, filter)
}

// search finds messages by what arg names: the first of the pending, the poisoned and the kept ones.
func (e *explainCommand) search(ctx context.Context, session *operator.Session, arg string, by poison.Filter) (ids []int64, err error) {
	page := pageFlags{Page: admin.Page{Size: mostOfKey}}
	poisoned, next, err := session.Poisoned().List(ctx, by, page.Page)
	if err != nil {
		return nil, err
	}
	for _, m := range poisoned {
		ids = append(ids, m.ID)
	}
	search := messagesFind{app: e.app, page: page, search: admin.Search{MessageID: by.MessageID, TraceID: by.TraceID}}
	pending, more, err := search.find(ctx, session)
	if err != nil {
		return nil, err
	}
	for _, m := range pending[:min(len(pending), mostOfKey)] {
		ids = append(ids, m.ID)
	}
	list := consumedList{app: e.app, page: page, filter: admin.ConsumedFilter{MessageID: by.MessageID, TraceID: by.TraceID}}
	kept, further, err := list.find(ctx, session)
	if err != nil {
		return nil, err
	}
	for _, m := range kept {
		ids = append(ids, m.ID)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w: no pending, poisoned or kept message has %s", errNotFound, arg)
	}
	if next != nil || more || len(pending) > mostOfKey || further != nil {
		e.app.note("More messages have %s than are explained here.", arg)
	}
	return ids, nil
}

func (e *explainCommand) explain(ctx context.Context, session *operator.Session, ids []int64) error {
	missing := 0
	for _, id := range ids {
		found, err := session.Messages().Explain(ctx, id)
		if errors.Is(err, admin.ErrNotFound) {
			kept, failed := session.Consumed().Get(ctx, id)
			if failed == nil {
				failed = e.writeConsumed(kept.ConsumedMessage)
			}
			if failed == nil {
				continue
			}
			if !errors.Is(failed, admin.ErrNotFound) {
				return failed
			}
			missing++
			e.app.note("message %d: not pending, poisoned or kept", id)
			continue
		}
		if err == nil {
			err = e.write(found)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case missing == len(ids):
		return fmt.Errorf("%w: none of these ids", errNotFound)
	case missing > 0:
		return errPartly
	default:
		return nil
	}
}

// writeConsumed says when a kept message was consumed, and by which version of the program.
func (e *explainCommand) writeConsumed(m admin.ConsumedMessage) error {
	if e.app.json {
		return e.app.line(m)
	}
	if err := e.app.say("%d  %s (%s): %s", m.ID, m.Consumer, m.PayloadType, m.Outcome); err != nil {
		return err
	}
	text := fmt.Sprintf("Message %s at %s", m.Outcome, show.Value(m.FinishedAt))
	if m.Outcome == "done" {
		text = "Message consumed at " + show.Value(m.FinishedAt)
	}
	if m.Version != "" {
		text += " by version " + m.Version
	}
	if !m.StartedAt.IsZero() {
		text += fmt.Sprintf(", in run %d, which took %s", m.Attempts, runTime(m))
	}
	return e.app.lines(show.Wrap(show.Text(text+"."), e.app.width, "  ", 0))
}

func (e *explainCommand) write(found admin.Explanation) error {
	if e.app.json {
		return e.app.line(found)
	}
	m := found.Message
	if err := e.app.say("%d  %s (%s): %s", m.ID, m.Consumer, m.PayloadType, found.Reason); err != nil {
		return err
	}
	return e.app.lines(show.Wrap(show.Text(found.Text), e.app.width, "  ", 0))
}
