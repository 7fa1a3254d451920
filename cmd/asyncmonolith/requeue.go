package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// poisonedChange is a command that changes poisoned messages: requeue or discard.
type poisonedChange struct {
	bulkChange
	filter poisonFilter
	do     func(poisoned *operator.Poisoned, ctx context.Context, reason string, ids ...int64) (operator.RequeueResult, error)
}

func newPoisonedChange(a *app, action ops.Action, done string) *poisonedChange {
	x := &poisonedChange{bulkChange: bulkChange{operationStart: operationStart{app: a, action: action, done: done}}}
	x.selected, x.byIDs = &x.filter, x.changeIDs
	return x
}

func requeueCommand(a *app) *cobra.Command {
	x := newPoisonedChange(a, ops.Requeue, "requeued")
	x.do = (*operator.Poisoned).Requeue
	c := x.command(&cobra.Command{
		Use: "requeue [ID...]", Short: "Make poisoned messages pending again",
		Long: `Make poisoned messages pending again. Ids are requeued at once. Flags select messages for an operation, which starts
after 10 s and can be undone until then. Canary messages go first; if more than a tenth of them fail again, the
operation pauses itself. Messages poisoned after its start are not included.`,
		Example: `  asyncmonolith requeue 17 18 --yes --reason "fixed in 1.4.2"
  asyncmonolith requeue --consumer mail --fingerprint 1f00ba5e1f00ba5e1
  asyncmonolith requeue --consumer mail --rate 500 --canary 20 --wait --yes --reason "fixed in 1.4.2"`,
	})
	c.Flags().IntVar(&x.options.Canary, "canary", 10, "messages that go first, up to 500; 0 means none")
	return c
}

// mostPreviewed is how many messages are read at once.
const mostPreviewed = 500

func (x *poisonedChange) changeIDs(ctx context.Context, session *operator.Session, ids []int64) error {
	if err := x.unconfirmed(); err != nil {
		return x.previewIDs(ctx, session, ids, err)
	}
	var found []poison.Message
	if x.action == ops.Requeue && len(ids) <= mostPreviewed { // for a hint: their consumers may be paused
		found, _, _ = session.Poisoned().List(ctx, poison.Filter{IDs: ids}, admin.Page{Size: len(ids)})
	}
	result, err := x.do(session.Poisoned(), ctx, x.reason, ids...)
	if err != nil {
		return err
	}
	if result.Requeued+result.Conflicts == 0 {
		return fmt.Errorf("%w: no poisoned message has one of these ids", errNotFound)
	}
	x.noteWaiting(ctx, session, consumersOfMessages(found))
	if result.Missing+result.Conflicts > 0 {
		err = errPartly
	}
	var became []int64
	for _, m := range result.Moved {
		became = append(became, m.New)
	}
	text := fmt.Sprintf("%s %s%s.", plural(result.Requeued, "message"), x.done, newIDsText(became))
	if result.Conflicts > 0 {
		text += fmt.Sprintf(" %s left poisoned: the insert id is pending already.", plural(result.Conflicts, "message"))
	}
	if result.Missing > 0 {
		text += fmt.Sprintf(" %d of the ids are not poisoned messages.", result.Missing)
	}
	if x.action == ops.Requeue {
		return x.app.result(requeued{result.Requeued, result.Conflicts, result.Missing, became}, text, err)
	}
	return x.app.result(map[string]int{"discarded": result.Requeued, "missing": result.Missing}, text, err)
}

// requeued is the JSON of a requeue. It leaves out which consumers are unknown here, since this program has none.
type requeued struct {
	Requeued  int     `json:"requeued"`
	Conflicts int     `json:"conflicts"`
	Missing   int     `json:"missing"`
	IDs       []int64 `json:"ids,omitempty"` // the new ids, in the order of the old ones
}

// newIDsText shows the new ids of requeued messages, if they are few.
func newIDsText(ids []int64) string {
	const few = 10
	switch {
	case len(ids) == 0 || len(ids) > few:
		return ""
	case len(ids) == 1:
		return fmt.Sprintf(": it is message %d now", ids[0])
	default:
		return fmt.Sprintf(": they are messages %s now", strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), "[]"))
	}
}

func consumersOfMessages(found []poison.Message) (consumers []string) {
	for _, m := range found {
		consumers = append(consumers, m.Consumer)
	}
	return consumers
}

func (x *poisonedChange) previewIDs(ctx context.Context, session *operator.Session, ids []int64, unconfirmed error) error {
	if len(ids) > mostPreviewed {
		return usage(fmt.Errorf("%d ids: at most %d are allowed: use flags that select messages", len(ids), mostPreviewed))
	}
	found, _, err := session.Poisoned().List(ctx, poison.Filter{IDs: ids}, admin.Page{Size: len(ids)})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("%w: no poisoned message has one of these ids", errNotFound)
	}
	slices.Reverse(found)
	defer x.noteWaiting(ctx, session, consumersOfMessages(found))
	if err := writePoisoned(ctx, x.app.output, session, "", found, nil); err != nil || x.app.json {
		return errors.Join(err, unconfirmed)
	}
	return errors.Join(x.app.say("%s would be %s.", plural(len(found), "message"), x.done), unconfirmed)
}
