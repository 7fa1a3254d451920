package main

import (
	"context"
	"errors"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

const watchEvery = 250 * time.Millisecond

// watch shows how far an operation is until it is over, and with here runs it from here, unless another process does. Where
// ctx ends it leaves the operation as it is.
func (r operationReport) watch(ctx context.Context, id int64, here bool) error {
	if here {
		end, err := startRunner(ctx, r.service, func(r *ops.Runner, ctx context.Context) error { return r.RunOnly(ctx, id) })
		if err != nil {
			return err
		}
		defer end()
	}
	p := r.progress()
	defer p.end()
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	var o ops.Operation
	lost := false
	for {
		now, err := r.session.Operation(ctx, id)
		switch {
		case ctx.Err() != nil:
			p.end()
			return r.left(id, o)
		case errors.Is(err, ops.ErrBusy): // it is looked at again
			now, err = o, nil
		case err != nil && (o.ID == 0 || connect.Trouble(err) == ""):
			return err
		case err != nil && !lost:
			p.now("the operation makes no progress: " + connect.Trouble(err))
		case err == nil && o.ID == 0 && !here && !over(now): // it is looked at for the first time
			r.noteUntaken(ctx, now)
			p.now(stateText(now))
		case err == nil && over(now): // its outcome is said
		case err == nil && (now.State != o.State || lost):
			p.now(stateText(now))
		case err == nil:
			p.show(stateText(now))
		}
		lost = err != nil
		if !lost {
			o = now
		}
		if o.ID != 0 && over(o) && !lost {
			p.end()
			return r.outcome(o)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// startRunner has a runner run operations, as run has it, until end is called.
func startRunner(
	ctx context.Context, service *ops.Service, run func(*ops.Runner, context.Context) error,
) (end func(), err error) {
	runner, err := ops.NewRunner(service, nil)
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
