package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// nobodyLives is why nothing would happen by itself.
const nobodyLives = "No live process runs ops.Runner, so nothing happens by itself"

// carried reports whether a live process carries out operations. What cannot be looked at is taken to be so: what
// the person asked for is done.
func carried(ctx context.Context, session *ops.Session) bool {
	lives, err := session.Operations().HasRunner(ctx)
	return lives || err != nil
}

// who says what becomes of an operation, where only others work on it.
func who(ctx context.Context, session *ops.Session, o ops.Operation) string {
	switch lives := carried(ctx, session); {
	case lives && o.Target.Projection != "":
		return "A process that runs ops.Runner, and has the projection's code, carries it out."
	case lives:
		return "A process that runs ops.Runner carries it out."
	case o.Target.Projection != "":
		return nobodyLives + ": start a process that runs it, and has the projection's code."
	default:
		return fmt.Sprintf("%s: asyncmonolith operations run %d carries it out from here.", nobodyLives, o.ID)
	}
}

// untaken says on stderr that no process carries out what is under way, unless one does.
func (a *app) untaken(ctx context.Context, session *ops.Session, o ops.Operation) {
	if !over(o) && !carried(ctx, session) {
		a.note("%s", who(ctx, session, o))
	}
}

// already says that an operation with the same target is under way. One that has paused itself does nothing of what
// was asked.
func (a *app) already(o ops.Operation) error {
	text := fmt.Sprintf("The same is under way: operation %d, started by %s.", o.ID, o.Actor)
	if o.State != ops.Paused {
		a.note("%s", text)
		return nil
	}
	a.note("%s It has paused itself, and nothing more happens until a person decides.", text)
	a.note("To have it go on:  asyncmonolith operations resume %d --yes --reason TEXT", o.ID)
	a.note("To end it:         asyncmonolith operations stop %d --reason TEXT", o.ID)
	err := fmt.Errorf("%w: operation %d has paused itself", errPartly, o.ID)
	if a.json {
		return a.also(o, err)
	}
	return err
}

// started says of an operation that is under way how to take it back and how to see how far it is.
func (a *app) started(ctx context.Context, session *ops.Session, o ops.Operation) error {
	back, here := fmt.Sprintf("To take it back before then:  asyncmonolith operations undo %d", o.ID), fmt.Sprintf("\nTo carry it out from here:    asyncmonolith operations run %d", o.ID)
	if o.State != ops.Waiting {
		back = fmt.Sprintf("To end it where it is:        asyncmonolith operations stop %d", o.ID)
	}
	if o.Target.Projection != "" {
		here = ""
	}
	return errors.Join(
		a.say("%s. %s", how(o), who(ctx, session, o)),
		a.say("%s", back),
		a.say("To see how far it is:         asyncmonolith operations watch %d%s", o.ID, here))
}

// pausedOf says on stderr which of some consumers are paused, since what is requeued waits then.
func (a *app) pausedOf(ctx context.Context, session *ops.Session, consumers []string) {
	o, err := session.Overview(ctx)
	if err != nil {
		return // it is a hint
	}
	for _, q := range o.Queues {
		if q.PausedAt.IsZero() || !slices.Contains(consumers, q.Consumer) {
			continue
		}
		by := ""
		if q.PausedBy != "" {
			by = " by " + q.PausedBy
		}
		a.note("%s is paused%s: what is requeued waits until it is resumed.", q.Consumer, by)
	}
}

// becameIDs is what messages that were requeued are called now, where they are few.
func becameIDs(ids []int64) string {
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
