package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

const watchEvery = 250 * time.Millisecond

// watch shows how far an operation is until it is over, and with work carries it out from here, unless
// another process does. Where ctx ends it leaves the operation as it is.
func (a *app) watch(ctx context.Context, session *ops.Session, id int64, work bool) error {
	if work {
		end, err := a.work(ctx, func(r *ops.Runner, ctx context.Context) error { return r.RunOnly(ctx, id) })
		if err != nil {
			return err
		}
		defer end()
	}
	p := a.progress()
	defer p.end()
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	var o ops.Operation
	lost := false
	for {
		now, err := session.Operations().Get(ctx, id)
		switch {
		case ctx.Err() != nil:
			p.end()
			return a.left(id, o)
		case errors.Is(err, ops.ErrBusy): // it is looked at again
			now, err = o, nil
		case err != nil && (o.ID == 0 || connect.Trouble(err) == ""):
			return err
		case err != nil && !lost:
			p.now("the operation makes no progress: " + connect.Trouble(err))
		case err == nil && o.ID == 0 && !work && !over(now): // it is looked at for the first time
			a.untaken(ctx, session, now)
			p.now(how(now))
		case err == nil && over(now): // its outcome is said
		case err == nil && (now.State != o.State || lost):
			p.now(how(now))
		case err == nil:
			p.show(how(now))
		}
		if lost = err != nil; !lost {
			o = now
		}
		if o.ID != 0 && over(o) && !lost {
			p.end()
			return a.outcome(o)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// work has a runner carry out operations, as run has it, until end is called.
func (a *app) work(ctx context.Context, run func(*ops.Runner, context.Context) error) (end func(), err error) {
	runner, err := ops.NewRunner(a.service, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run(runner, ctx) // its only error is that it runs already
	}()
	return func() {
		cancel()
		<-done
	}, nil
}

// over reports whether nothing more happens by itself.
func over(o ops.Operation) bool {
	switch o.State {
	case ops.Done, ops.Undone, ops.Stopped, ops.Paused, ops.Planned, ops.Started:
		return true
	default:
		return false
	}
}

// how is how far an operation is.
func how(o ops.Operation) string {
	text := fmt.Sprintf("operation %d (%s) is %s", o.ID, o.Action, o.State)
	if o.State == ops.Waiting {
		return text + ", and begins at " + show.Value(o.StartsAt) + " UTC"
	}
	text += fmt.Sprintf(": %d", o.Changed)
	if o.Preview != nil && o.Preview.Messages > 0 {
		of := fmt.Sprint(o.Preview.Messages)
		if o.Preview.More {
			of += "+"
		}
		text += " of " + of
	}
	text += " changed"
	if o.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", o.Skipped)
	}
	if o.Note != "" {
		text += "; " + o.Note
	}
	return text
}

// outcome is what became of an operation.
func (a *app) outcome(o ops.Operation) error {
	var err error
	switch {
	case o.State == ops.Done && o.Skipped == 0:
	case o.State == ops.Paused:
		err = fmt.Errorf("%w: it has paused itself: asyncmonolith operations show %d --show-payloads says why, then operations resume %d or stop %d", errPartly, o.ID, o.ID, o.ID)
	default:
		err = errPartly
	}
	if a.json {
		return a.also(o, err)
	}
	return a.alsoSay(how(o)+".", err)
}

// left says what becomes of an operation that is not watched from here any more.
func (a *app) left(id int64, o ops.Operation) error {
	a.note("Left as it is: %s. A live process that runs ops.Runner goes on with it, if there is one.", how(o))
	a.note("To go on from here:  asyncmonolith operations run %d", id)
	if o.State == ops.Waiting {
		a.note("To take it back:     asyncmonolith operations undo %d", id)
	} else {
		a.note("To end it:           asyncmonolith operations stop %d", id)
	}
	return fmt.Errorf("%w: operation %d is left under way", errPartly, id)
}
