package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// matching shows what an operation would change, or starts one.
func (b *bulk) matching(ctx context.Context, target ops.Target) error {
	switch {
	case b.undo < 0:
		return usage(fmt.Errorf("--undo-window %s: 0 or more is allowed", b.undo))
	case b.undo == 0:
		b.undo = -1 // none
	}
	session, err := b.session()
	if err != nil {
		return err
	}
	if err := b.unconfirmed(); err != nil {
		preview, failed := session.Operations().Preview(ctx, b.action, target)
		if failed != nil {
			return b.nothing(ctx, session, target, failed)
		}
		said := b.preview(preview)
		b.pausedIn(ctx, session, &preview)
		return errors.Join(said, err)
	}
	planned, err := session.Operations().Plan(ctx, b.action, target)
	if err != nil {
		return b.nothing(ctx, session, target, err)
	}
	terms := b.terms
	terms.Reason = b.reason
	if terms.Canary == 0 {
		terms.Canary = -1 // none
	}
	started, err := session.Operations().Start(ctx, planned.ID, terms)
	already := errors.Is(err, ops.ErrInProgress)
	if already {
		err = b.already(started)
	}
	if err != nil {
		return err
	}
	b.pausedIn(ctx, session, started.Preview)
	if b.wait {
		return b.watch(ctx, session, started.ID, started.Target.Projection == "")
	}
	if b.json {
		b.untaken(ctx, session, started)
		return b.line(started)
	}
	if started.Preview != nil && !already {
		if err := b.preview(*started.Preview); err != nil {
			return err
		}
	}
	return b.started(ctx, session, started)
}

// pausedIn says which consumers of what is to be requeued are paused.
func (b *bulk) pausedIn(ctx context.Context, session *ops.Session, p *ops.Preview) {
	if b.action == ops.Requeue && p != nil {
		b.pausedOf(ctx, session, p.Consumers)
	}
}

// nothing is the error where nothing matches, which may be a mistake of usage.
func (b *bulk) nothing(ctx context.Context, session *ops.Session, t ops.Target, err error) error {
	consumer := ""
	switch {
	case !errors.Is(err, ops.ErrNoMatch):
	case t.Poisoned != nil:
		consumer = t.Poisoned.Consumer
	case t.Pending != nil:
		consumer = t.Pending.Consumer
	}
	return cmp.Or(b.mistyped(ctx, session, consumer), err)
}

// preview writes what an operation changes.
func (b *bulk) preview(p ops.Preview) error {
	if b.json {
		return b.line(p)
	}
	kinds := list[poison.PreviewKind]{
		columns: []show.Column{{Title: "CONSUMER"}, {Title: "PAYLOAD TYPE", Gives: 3}, {Title: "MESSAGES", Kind: show.Number}, {Title: "OLDEST", Kind: show.Whole, Gives: 2}, {Title: "NEWEST", Kind: show.Whole, Gives: 1}, {Title: "CONFLICTS", Kind: show.Number}, {Title: "NO LIVE PROCESS", Kind: show.Number}},
		row: func(k poison.PreviewKind) []any {
			return []any{k.Consumer, k.PayloadType, k.Messages, k.Oldest, k.Newest, count(int64(k.Conflicts)), count(int64(k.Unhandled))}
		},
	}
	if p.Poisoned != nil {
		if err := kinds.write(b.app, p.Poisoned.Kinds, nil); err != nil {
			return err
		}
	}
	switch {
	case p.Incomplete:
		return b.say("Those to be %s took too long to count: there may be none.", b.done)
	case p.Messages == 0:
		return nil
	}
	if b.action == ops.RetryParked {
		return b.say("%s to be applied again, and none that is parked later.", many(p.Messages, "event"))
	}
	switch said := fmt.Sprintf("%s to be %s, and nothing that comes later.", messages(p.Messages), b.done); {
	case p.First:
		return b.say("The first %s More match, and stay as they are: do it again for them.", said)
	case p.More && p.Poisoned != nil:
		return b.say("At least %s The table has the first of them only.", said)
	case p.More:
		return b.say("At least %s", said)
	default:
		return b.say("%s", said)
	}
}
