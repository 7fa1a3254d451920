package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// bulk is a change of messages: of those that are named, at once, or of all that match, as an operation.
type bulk struct {
	*app
	action ops.Action
	done   string // what the messages are then
	// named changes messages by their ids, and target is what flags select, and whether they select
	// anything but all.
	named  func(context.Context, *ops.Session, []int64) error
	target func() (target ops.Target, narrow bool)

	all      bool
	exported string // a file with the messages
	wait     bool
	terms    ops.StartOptions
}

func (a *app) requeueCommand() *cobra.Command {
	var filter poisonFilter
	b := &bulk{app: a, action: ops.Requeue, done: "requeued", target: filter.target}
	b.named = func(ctx context.Context, s *ops.Session, ids []int64) error {
		return b.poisonedByIDs(ctx, s, ids, func() (poison.ChunkResult, error) { return s.Poisoned().Requeue(ctx, a.reason, ids...) })
	}
	c := b.command(&cobra.Command{
		Use: "requeue [ID...]", Short: "Make poisoned messages pending again",
		Long: `Make poisoned messages pending again: those with the ids at once, or all that match the flags as an operation.
An operation begins after 10 s, in which it can be undone; a few messages go first, and where more than a tenth
of these fail again it pauses itself. It covers what was poisoned when it was started, and nothing later.`,
		Example: `  asyncmonolith requeue 17 18 --yes --reason "fixed in 1.4.2"
  asyncmonolith requeue --consumer mail --fingerprint 1f00ba5e1f00ba5e1
  asyncmonolith requeue --consumer mail --rate 500 --canary 20 --wait --yes --reason "fixed in 1.4.2"`,
	})
	filter.flags(a, c)
	c.Flags().IntVar(&b.terms.Canary, "canary", 10, "messages that go first, up to 500; 0: none")
	return c
}

func (a *app) discardCommand() *cobra.Command {
	var filter poisonFilter
	b := &bulk{app: a, action: ops.Discard, done: "discarded", target: filter.target}
	b.named = func(ctx context.Context, s *ops.Session, ids []int64) error {
		return b.poisonedByIDs(ctx, s, ids, func() (poison.ChunkResult, error) {
			n, err := s.Poisoned().Discard(ctx, a.reason, ids...)
			return poison.ChunkResult{Result: poison.Result{Requeued: n, Missing: len(ids) - n}}, err
		})
	}
	c := b.command(&cobra.Command{
		Use: "discard [ID...]", Short: "Delete poisoned messages for good",
		Long: `Delete poisoned messages for good: those with the ids at once, or all that match the flags as an operation,
which begins after 10 s, in which it can be undone. asyncmonolith poisoned export keeps them elsewhere: --exported
deletes at once what is in its file, and nothing that was poisoned since.`,
		Example: `  asyncmonolith discard 17 18 --yes --reason "test data"
  asyncmonolith discard --exported mail.ndjson --yes --reason "kept elsewhere"
  asyncmonolith discard --consumer mail --poisoned-before 2025-01-01 --yes --reason "too old to matter"`,
	})
	filter.flags(a, c)
	c.Flags().StringVar(&b.exported, "exported", "", "those in a file that poisoned export has written with --show-payloads")
	_ = c.MarkFlagFilename("exported")
	return c
}

func (b *bulk) command(c *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error { return b.run(c.Context(), args) }
	c.Flags().BoolVar(&b.all, "all", false, "all there are")
	c.Flags().IntVar(&b.terms.Rate, "rate", 100, "messages a second, up to 100000")
	b.operationFlags(c, "carry it out from here, and show how far it is, until it is over")
	return b.changing(c)
}

// operationFlags are those of what begins an operation.
func (b *bulk) operationFlags(c *cobra.Command, waits string) {
	c.Flags().BoolVar(&b.wait, "wait", false, waits)
	c.Flags().DurationVar(&b.undo, "undo-window", 10*time.Second, "how long it can be undone before it begins")
}

func (b *bulk) run(ctx context.Context, args []string) error {
	target, narrow := b.target()
	switch {
	case b.exported != "" && (len(args) > 0 || narrow || b.all || b.wait):
		return usage(errors.New("--exported is given, and something else that selects messages, or --wait: use one"))
	case b.exported != "":
		return b.discardExported(ctx, b.exported)
	case len(args) > 0 && (narrow || b.all):
		return usage(errors.New("ids and flags that select messages are both given: use one"))
	case len(args) == 0 && !narrow && !b.all:
		return usage(errors.New("nothing says which messages: give ids, flags such as --consumer, or --all"))
	case narrow && b.all:
		return usage(errors.New("--all and flags that select messages are both given: use one"))
	}
	named, err := ids(args)
	if err == nil && len(named) == 0 {
		return b.matching(ctx, target)
	}
	if err != nil {
		return err
	}
	session, err := b.session()
	if err != nil {
		return err
	}
	return b.named(ctx, session, named)
}

// poisonedByIDs changes poisoned messages at once.
func (b *bulk) poisonedByIDs(ctx context.Context, session *ops.Session, named []int64, do func() (poison.ChunkResult, error)) error {
	if err := b.unconfirmed(); err != nil {
		return b.previewNamed(ctx, session, named, err)
	}
	var found []poison.Message
	if b.action == ops.Requeue && len(named) <= mostPreviewed { // whose consumers may be paused: it is a hint
		found, _, _ = session.Poisoned().List(ctx, poison.Filter{IDs: named}, admin.Page{Size: len(named)})
	}
	result, err := do()
	if err != nil {
		return err
	}
	if result.Requeued+result.Conflicts == 0 {
		return fmt.Errorf("%w: no poisoned message has one of these ids", errNotFound)
	}
	b.pausedAmong(ctx, session, found)
	if result.Missing+result.Conflicts > 0 {
		err = errPartly
	}
	var became []int64
	for _, m := range result.Moved {
		became = append(became, m.New)
	}
	if b.json && b.action == ops.Requeue {
		return b.also(requeued{result.Requeued, result.Conflicts, result.Missing, became}, err)
	} else if b.json {
		return b.also(map[string]int{"discarded": result.Requeued, "missing": result.Missing}, err)
	}
	text := fmt.Sprintf("%s %s%s.", messages(result.Requeued), b.done, becameIDs(became))
	if result.Conflicts > 0 {
		text += fmt.Sprintf(" %s left poisoned, since the insert id is pending already.", messages(result.Conflicts))
	}
	if result.Missing > 0 {
		text += fmt.Sprintf(" %d of the ids are of no poisoned message.", result.Missing)
	}
	return b.alsoSay(text, err)
}

// requeued is what became of messages, as programs read it. What this program has no consumers of is no news.
type requeued struct {
	Requeued  int     `json:"requeued"`
	Conflicts int     `json:"conflicts"`
	Missing   int     `json:"missing"`
	IDs       []int64 `json:"ids,omitempty"` // what they are called now, in the order of their old ids
}

// pausedAmong says which consumers of messages that are to be requeued are paused.
func (b *bulk) pausedAmong(ctx context.Context, session *ops.Session, found []poison.Message) {
	if b.action != ops.Requeue || len(found) == 0 {
		return
	}
	var consumers []string
	for _, m := range found {
		consumers = append(consumers, m.Consumer)
	}
	b.pausedOf(ctx, session, consumers)
}

// mostPreviewed is how many messages are listed before they are changed by their ids.
const mostPreviewed = 500

func (b *bulk) previewNamed(ctx context.Context, session *ops.Session, named []int64, unconfirmed error) error {
	if len(named) > mostPreviewed {
		return usage(fmt.Errorf("%d ids: at most %d are allowed: use flags that select messages", len(named), mostPreviewed))
	}
	found, _, err := session.Poisoned().List(ctx, poison.Filter{IDs: named}, admin.Page{Size: len(named)})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("%w: no poisoned message has one of these ids", errNotFound)
	}
	slices.Reverse(found)
	defer b.pausedAmong(ctx, session, found)
	if err := poisonedRows().write(b.app, found, nil); err != nil || b.json {
		return errors.Join(err, unconfirmed)
	}
	return b.alsoSay(fmt.Sprintf("%s would be %s.", messages(len(found)), b.done), unconfirmed)
}
