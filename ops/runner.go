package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/lifecycle"
	"github.com/asyncmonolith/asyncmonolith-go/internal/overview"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	lookEvery    = undoWindow // poll interval: operations started elsewhere are seen before they begin
	lease        = 15 * time.Second
	operationsAt = 4 // concurrent operations
	tick         = 200 * time.Millisecond
	trialTick    = time.Second // between checks of canaries
)

// Runner carries out operations. Any number of runners in any number of processes share them. One
// runner works on an operation at a time; if it dies, another continues after the completed steps.
// A runner carries out four operations at once, the oldest first, in addition to those waiting for
// canaries.
//
// An operation pauses itself if three processes in a row died while they ran it without progress.
// A Runner is safe for concurrent use.
type Runner struct {
	service     *Service
	projections *projection.Runner
	lifecycle   lifecycle.Run
	owner       string

	places chan struct{} // one for each operation being carried out
	mu     sync.Mutex
	ours   map[int64]bool
	freed  chan struct{} // a place became free
}

// NewRunner makes a runner. If projections is nil, operations on projections are left to other
// processes. So are those on projections or versions that it does not have.
func NewRunner(s *Service, projections *projection.Runner) (*Runner, error) {
	if s == nil {
		return nil, errors.New("ops: NewRunner: the service is nil")
	}
	return &Runner{
		service: s, projections: projections, owner: uuid.NewString(), places: make(chan struct{}, operationsAt),
		ours: make(map[int64]bool), freed: make(chan struct{}, 1),
	}, nil
}

// Run carries out operations until ctx is cancelled. It then finishes the current steps, in at
// most 10 s, and returns nil. Unfinished operations continue in another process or at the next
// Run.
//
// Run polls the database every 10 s. It begins operations started with its own service at once. If
// the database cannot be reached, Run retries. A second concurrent Run returns bus.ErrRunning.
func (r *Runner) Run(ctx context.Context) error { return r.run(ctx, 0) }

// runOnly is [Runner.Run] for one operation. It also returns nil once the operation is finished,
// has paused itself, or does not exist.
func (r *Runner) runOnly(ctx context.Context, id int64) error {
	if id < 1 {
		return fmt.Errorf("ops: run only %d: %w", id, ErrNotFound)
	}
	return r.run(ctx, id)
}

func (r *Runner) run(ctx context.Context, only int64) error {
	return r.lifecycle.Do(ctx, lifecycle.Config{Package: "ops", Heartbeat: heartbeat.Config{
		Store: r.service.store, DB: r.service.config.DB, Registry: r.service.config.Registry, ID: r.owner, Kind: overview.RunnerKind,
		Doing: func() heartbeat.State {
			return heartbeat.State{Operation: only, Running: len(r.places), Limit: operationsAt}
		},
		Logger: r.service.config.Logger,
	}}, func(ctx context.Context) { r.poll(ctx, only) })
}

// poll carries out operations until ctx ends, or the only operation is over.
func (r *Runner) poll(ctx context.Context, only int64) {
	var working sync.WaitGroup
	defer working.Wait()
	var last string
	for ctx.Err() == nil {
		wait, over, err := r.take(ctx, only, &working)
		if over {
			return
		}
		var text string
		if err != nil {
			text = err.Error()
		}
		if text != "" && text != last && ctx.Err() == nil {
			r.service.config.Logger.Warn("operations wait", "error", text)
		}
		last = text
		select {
		case <-time.After(wait):
		case <-r.service.started:
		case <-r.freed:
		case <-ctx.Done():
		}
	}
}

// waits returns how long until an operation is free. A lease longer than lease means that the clock was
// set back: it is shortened to a full lease, because its owner may be alive.
func (r *Runner) waits(ctx context.Context, row store.Operation) (wait time.Duration, err error) {
	left := row.LeasedUntil.Sub(row.Now.Time)
	if left > lease {
		filter := store.OperationFilter{ID: row.ID, LeasedBy: row.LeasedBy}
		_, err = r.service.store.Operations.Change(ctx, r.service.config.DB, filter, store.OperationChange{Lease: lease})
	}
	return max(row.StartsAt.Sub(row.Now.Time), min(left, lease)), err
}

// take begins work on free operations. It returns when to poll again, or that the only operation
// is over.
func (r *Runner) take(ctx context.Context, only int64, working *sync.WaitGroup) (wait time.Duration, over bool, err error) {
	within, cancel := context.WithTimeout(ctx, stepTime) // a dead connection must not stop the runner
	defer cancel()
	states := names(Waiting, Canary, Running)
	rows, err := r.service.store.Operations.List(
		within, r.service.config.DB, store.OperationFilter{ID: only, States: states, OldestFirst: true}, mostOpen,
	)
	if err != nil {
		return lookEvery, false, err
	}
	if only != 0 && len(rows) == 0 {
		return 0, true, nil
	}
	wait = lookEvery
	var failed error
	for _, row := range rows {
		soon, err := r.waits(within, row)
		failed = errors.Join(failed, err)
		if soon > 0 {
			wait = min(wait, soon)
			continue
		}
		w := r.begin(row)
		if w == nil {
			continue
		}
		leased, err := r.service.store.Operations.Lease(
			within, r.service.config.DB, store.OperationFilter{ID: row.ID, States: states, Free: true, Idle: string(Canary)}, r.owner, lease,
		)
		switch {
		case err != nil: // the next one may be leased even so
			w.end()
			failed = errors.Join(failed, fmt.Errorf("lease operation %d: %w", row.ID, err))
			continue
		case !leased: // it is locked, or another runner was faster
			w.end()
			wait = min(wait, time.Second)
			continue
		}
		working.Go(func() {
			w.run(ctx)
			w.end()
			w.look()
		})
	}
	return wait, false, failed
}

// begin returns the work on an operation, or nil if this runner already does it, cannot do it, or
// has no free place for it.
func (r *Runner) begin(row store.Operation) *work {
	if !r.can(row) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &work{Runner: r, id: row.ID, log: r.service.config.Logger.With("operation", row.ID)}
	if r.ours[row.ID] || !tried(row) && !w.enter() {
		return nil
	}
	r.ours[row.ID] = true
	return w
}

// end ends the work that begin started.
func (w *work) end() {
	w.mu.Lock()
	delete(w.ours, w.id)
	w.mu.Unlock()
	w.leave()
}

// enter takes a place if one is free.
func (w *work) enter() bool {
	if w.placed {
		return true
	}
	select {
	case w.places <- struct{}{}:
		w.placed = true
	default:
	}
	return w.placed
}

// leave releases the place and reports whether there was one. It does not call look: a runner that fails
// to lease an operation would poll again without a pause.
func (w *work) leave() bool {
	placed := w.placed
	if placed {
		<-w.places
		w.placed = false
	}
	return placed
}

// look makes the runner poll again.
func (r *Runner) look() {
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// run carries out a leased operation until it is over, its lease is lost, or ctx ends.
func (w *work) run(ctx context.Context) {
	defer w.free(context.WithoutCancel(ctx))
	failures := 0
	for ctx.Err() == nil {
		wait, over, err := w.guarded(ctx)
		switch {
		case over:
			return
		case err != nil && ctx.Err() == nil:
			w.log.Warn("operation step failed", "error", err.Error())
			_, crashed := errors.AsType[*bus.PanicError](err)
			if failures++; failures >= mostFailures || crashed && failures >= mostDeaths {
				_ = w.pause(ctx, fmt.Sprintf("failed %d times in a row%s%s", failures, foreign, said(err))) // otherwise it is retried
				return
			}
			wait = time.Second
		case err == nil:
			failures = 0
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// guarded is step; a panic there is an error.
func (w *work) guarded(ctx context.Context) (wait time.Duration, over bool, err error) {
	err = isolate.Try("ops: a step", func() (err error) {
		wait, over, err = w.step(ctx)
		return err
	})
	return wait, over, err
}

// mostFailures is how many steps in a row may fail before the operation pauses.
const mostFailures = 10

// work is one operation in progress.
type work struct {
	*Runner
	id     int64
	placed bool // it holds a place
	pace   pace
	log    *slog.Logger
	// looked is when repeated failures were last checked.
	looked time.Time
}

// free releases the lease, if this runner still holds it.
func (w *work) free(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := w.service.store.Operations.Change(ctx, w.service.config.DB, w.own(), store.OperationChange{Free: true}); err != nil {
		w.log.Warn("operation lease not returned", "error", err.Error(), "after", lease.String())
	}
}

// own selects the operation while this runner holds its lease.
func (w *work) own() store.OperationFilter {
	return store.OperationFilter{ID: w.id, States: names(Waiting, Canary, Running), LeasedBy: w.owner}
}

// change changes the operation while this runner holds its lease.
func (w *work) change(ctx context.Context, c store.OperationChange) error {
	_, err := w.service.store.Operations.Change(ctx, w.service.config.DB, w.own(), c)
	return err
}

// pause pauses the operation until a principal decides.
func (w *work) pause(ctx context.Context, why string) error {
	w.log.Warn("operation paused itself", "why", why)
	return w.change(ctx, store.OperationChange{State: string(Paused), Note: &why, Free: true})
}
