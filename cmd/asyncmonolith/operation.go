package main

import (
	"context"
	"errors"
	"fmt"

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
	seat, err := b.seat()
	if err != nil {
		return err
	}
	if err := b.unconfirmed(); err != nil {
		preview, failed := seat.Preview(ctx, b.action, target)
		if failed != nil {
			return failed
		}
		return errors.Join(b.preview(preview), err)
	}
	planned, err := seat.Plan(ctx, b.action, target)
	if err != nil {
		return err
	}
	terms := b.terms
	terms.Reason = b.reason
	if terms.Canary == 0 {
		terms.Canary = -1 // none
	}
	started, err := seat.Start(ctx, planned.ID, terms)
	already := errors.Is(err, ops.ErrAlready)
	if err != nil {
		_, _ = seat.Undo(context.WithoutCancel(ctx), planned.ID) // a plan that nobody starts
		if !already {
			return err
		}
		b.note("The same is under way: operation %d, started by %s.", started.ID, started.Actor)
	}
	switch {
	case b.wait:
		return b.watch(ctx, seat, started.ID, true)
	case b.json:
		return b.line(started)
	}
	if started.Preview != nil && !already {
		if err := b.preview(*started.Preview); err != nil {
			return err
		}
	}
	return errors.Join(
		b.say("%s. A process that runs ops.Runner carries it out.", how(started)),
		b.say("To take it back before then:  asyncmonolith operations undo %d", started.ID),
		b.say("To see how far it is:         asyncmonolith operations watch %d   (with --work it is carried out from there)", started.ID))
}

// preview writes what an operation changes.
func (b *bulk) preview(p ops.Preview) error {
	if b.json {
		return b.line(p)
	}
	kinds := list[poison.PreviewKind]{
		titles: []string{"CONSUMER", "PAYLOAD TYPE", "MESSAGES", "OLDEST", "NEWEST", "CONFLICTS", "NO LIVE PROCESS"}, right: []bool{false, false, true, false, false, true, true},
		row: func(k poison.PreviewKind) []any {
			return []any{k.Consumer, k.PayloadType, k.Messages, k.Oldest, k.Newest, k.Conflicts, k.Untaken}
		},
	}
	if p.Poisoned != nil {
		if err := kinds.write(b.app, p.Poisoned.Kinds, nil); err != nil {
			return err
		}
	}
	if p.Messages == 0 {
		return nil
	}
	more := ""
	if p.More {
		more = "More than "
	}
	return b.say("%s%s to be %s, and nothing that comes later.", more, messages(p.Messages), b.done)
}
