package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

const watchEvery = 250 * time.Millisecond

// watch shows the progress of an operation until it is over. With here this process runs the operation, unless another does.
// If ctx is done, watch leaves the operation as it is.
func (r operationReport) watch(ctx context.Context, id int64, here bool) error {
	if here {
		end, err := startRunner(ctx, r.service, func(r *ops.Runner, ctx context.Context) error { return operator.RunOnly(ctx, r, id) })
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
	canaries := canaryNote{report: r}
	for {
		now, err := r.session.Operations().Get(ctx, id)
		switch {
		case ctx.Err() != nil:
			p.end()
			return r.interrupted(id, o)
		case errors.Is(err, ops.ErrBusy): // the next read may succeed
			now, err = o, nil
		case err != nil && (o.ID == 0 || connect.Trouble(err) == ""):
			return err
		case err != nil && !lost:
			p.now("the operation makes no progress: " + connect.Trouble(err))
		case err == nil && o.ID == 0 && !here && !over(now): // the first read
			r.noteUntaken(ctx, now)
			p.now(stateText(now))
		case err == nil && over(now): // outcome writes it
		case err == nil && (now.State != o.State || lost):
			p.now(stateText(now))
		case err == nil:
			p.show(stateText(now))
		}
		lost = err != nil
		if !lost {
			o = now
			canaries.write(ctx, o, p)
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

// canaryNote says once why the canaries of an operation do not run, if no process consumes them.
type canaryNote struct {
	report operationReport
	looked time.Time
	said   bool
}

func (n *canaryNote) write(ctx context.Context, o ops.Operation, p *progress) {
	if n.said || o.State != ops.Canary || o.Preview == nil || time.Since(n.looked) < progressEvery {
		return
	}
	n.looked = time.Now()
	overview, err := n.report.session.Overview(ctx)
	if err != nil {
		return // it is only a hint
	}
	for _, u := range overview.Unhandled {
		if slices.Contains(o.Preview.Consumers, u.Consumer) {
			n.said = true
			p.end()
			n.report.note("No live process consumes %s: the operation waits for one to run its canaries.", u.Consumer)
			return
		}
	}
}

// startRunner calls run with a runner, in a goroutine that end stops.
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
		_ = run(runner, ctx) // it fails only if it runs already
	}()
	return func() {
		cancel()
		<-done
	}, nil
}
