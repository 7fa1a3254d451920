package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/server"
)

const (
	// settleEvery is how often a measurement looks whether all is settled, once
	// all is handled.
	settleEvery = 2 * time.Millisecond
	// timeLimit ends a measurement that hangs.
	timeLimit = 10 * time.Minute
)

// Bench makes measurements on a server, one at a time.
type Bench struct {
	Server *server.Server
}

// fresh runs a measurement in a database of its own, within the time limit.
// What fails in the background ends it: see run.fail.
func (b *Bench) fresh(ctx context.Context, measure func(r *run) error) (err error) {
	dsn, drop, err := b.Server.Fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not finished after %s", timeLimit))
	defer cancel()
	return runIn(ctx, &run{dsn: dsn, server: b.Server}, measure)
}

func runIn(ctx context.Context, r *run, measure func(r *run) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r.ctx, r.fail = ctx, fail
	err := measure(r)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err) // it is why, err only where it was noticed
	}
	return err
}

// run is one measurement.
type run struct {
	ctx    context.Context
	dsn    string
	server *server.Server // nil when it is not PostgreSQL
	broker Broker         // nil when there is none
	fail   context.CancelCauseFunc
}

// with opens the contender for the length of use.
func (r *run) with(c contender.Contender, work contender.Work, use func(contender.System) error) (err error) {
	work.Fail = r.fail
	system, err := c.Open(r.ctx, r.dsn, work)
	if err != nil {
		return fmt.Errorf("open %s: %w", c.Name, err)
	}
	defer func() { err = errors.Join(err, system.Close()) }()
	return use(system)
}

// settled waits until the system has nothing pending.
func (r *run) settled(system contender.System) error {
	ticker := time.NewTicker(settleEvery)
	defer ticker.Stop()
	for {
		pending, err := system.Pending(r.ctx)
		switch {
		case err != nil:
			return fmt.Errorf("look for pending messages: %w", err)
		case !pending:
			return nil
		}
		select {
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		case <-ticker.C:
		}
	}
}
