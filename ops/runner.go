package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/presence"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	lookEvery    = undoWindow // for what others have started, which is seen before it is to begin
	lease        = 15 * time.Second
	operationsAt = 4 // once
	tick         = 200 * time.Millisecond
	trialTick    = time.Second // between looks at canaries
)

// ErrRunning is returned by [Runner.Run] while another Run of the same Runner has not returned.
var ErrRunning = errors.New("ops: the runner is running already")

// Runner carries out operations. Any number of runners, in any number of processes, share them: each
// operation is worked on by one at a time, and where one dies another goes on behind what it has done. An operation
// pauses itself when three processes in a row died while they ran it, and it made no progress meanwhile. A runner
// carries out four at once, the oldest first, besides those whose canaries are waited for. It is safe for
// concurrent use.
type Runner struct {
	service     *Service
	projections *projection.Runner
	running     atomic.Bool
	owner       string

	places chan struct{} // one for each that is carried out now
	mu     sync.Mutex
	ours   map[int64]bool
	freed  chan struct{} // there is a place
}

// NewRunner makes a runner. The projections' runner may be nil: then operations on projections are left
// to processes that have one, and so are those on projections, or versions, that it was not given.
func NewRunner(d *Service, projections *projection.Runner) (*Runner, error) {
	if d == nil {
		return nil, errors.New("ops: NewRunner: the service is nil")
	}
	return &Runner{service: d, projections: projections, owner: uuid.NewString(), places: make(chan struct{}, operationsAt), ours: make(map[int64]bool), freed: make(chan struct{}, 1)}, nil
}

// Run carries out operations until ctx is cancelled, and then returns nil once the steps that are
// under way are done, which takes 10 s at most; what remains of an operation goes on elsewhere, or
// at the next Run. It asks the database every 10 s what there is to do, and at once for what was
// started with its own service. If the database cannot be reached, Run tries again. A second Run at
// the same time returns [ErrRunning].
func (r *Runner) Run(ctx context.Context) error { return r.run(ctx, 0) }

// RunOnly is [Runner.Run] for one operation: it leaves all others alone, and returns nil as well once that one
// is over, has paused itself, or is not there.
func (r *Runner) RunOnly(ctx context.Context, id int64) error {
	if id < 1 {
		return fmt.Errorf("ops: run only %d: %w", id, ErrNotFound)
	}
	return r.run(ctx, id)
}

func (r *Runner) run(ctx context.Context, only int64) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer r.running.Store(false)
	defer presence.New(presence.Config{
		Store: r.service.store, DB: r.service.config.DB, Registry: r.service.config.Registry, ID: r.owner, Kind: runnerKind, Doing: r.doing, Logger: r.service.config.Logger,
	}).Start(ctx)()
	var working sync.WaitGroup
	defer working.Wait()
	failing := false
	for ctx.Err() == nil {
		wait, over, err := r.take(ctx, only, &working)
		if over {
			return nil
		}
		if err != nil && !failing && ctx.Err() == nil {
			r.service.config.Logger.Warn("operations cannot be looked for", "error", err.Error())
		}
		failing = err != nil
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.service.started:
		case <-r.freed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// doing is what the runner reports of itself.
func (r *Runner) doing() presence.State {
	return presence.State{Running: len(r.places), Limit: operationsAt}
}

// take begins to work on what is free, and returns when to look again, or that there is nothing of the only one.
func (r *Runner) take(ctx context.Context, only int64, working *sync.WaitGroup) (wait time.Duration, over bool, err error) {
	states := names(Waiting, Canary, Running)
	rows, err := r.service.store.Operations(ctx, r.service.config.DB, store.OperationFilter{ID: only, States: states, OldestFirst: true}, mostOpen)
	if err != nil {
		return lookEvery, false, err
	}
	if only != 0 && len(rows) == 0 {
		return 0, true, nil
	}
	wait = lookEvery
	for _, row := range rows {
		soon := row.StartsAt.Sub(row.Now.Time)
		if row.LeasedUntil.After(row.Now.Time) {
			soon = max(soon, row.LeasedUntil.Sub(row.Now.Time))
		}
		if soon > 0 {
			wait = min(wait, soon)
			continue
		}
		w := r.begin(row)
		if w == nil {
			continue
		}
		leased, err := r.service.store.LeaseOperation(ctx, r.service.config.DB, store.OperationFilter{ID: row.ID, States: states, Free: true}, r.owner, lease)
		if err != nil || !leased {
			w.end()
			if err != nil {
				return wait, false, err
			}
			continue
		}
		working.Go(func() {
			defer w.end()
			w.run(ctx)
		})
	}
	return wait, false, nil
}

// begin is the work on an operation, unless that is done here already, cannot be done here, or takes a place
// and there is none.
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

// end is the end of what begin has begun.
func (w *work) end() {
	w.mu.Lock()
	delete(w.ours, w.id)
	w.mu.Unlock()
	w.leave()
	w.look()
}

// enter takes a place, if there is one.
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

// leave gives it to others.
func (w *work) leave() {
	if w.placed {
		<-w.places
		w.placed = false
		w.look()
	}
}

// look has the runner look again.
func (r *Runner) look() {
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// run carries out an operation that is leased, until it is over, is not ours any more, or ctx ends.
func (w *work) run(ctx context.Context) {
	defer w.free(context.WithoutCancel(ctx))
	failures := 0
	for ctx.Err() == nil {
		wait, over, err := w.step(ctx)
		switch {
		case over:
			return
		case err != nil && ctx.Err() == nil:
			w.log.Warn("a step of an operation failed, and is tried again", "error", err.Error())
			if failures++; failures >= mostFailures {
				_ = w.pause(ctx, fmt.Sprintf("it failed %d times in a row%s%s", failures, foreign, said(err))) // else it is taken up again
				return
			}
			wait = time.Second
		case err == nil:
			failures = 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// mostFailures is how many steps of an operation may fail in a row.
const mostFailures = 10

// work is one operation under way.
type work struct {
	*Runner
	id     int64
	placed bool // it has one of the places
	pace   pace
	log    *slog.Logger
	// looked is when it was last asked whether failures come back.
	looked time.Time
}

// free gives the operation back, if it is still ours.
func (w *work) free(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := w.service.store.ChangeOperation(ctx, w.service.config.DB, w.own(), store.OperationChange{Free: true}); err != nil {
		w.log.Warn("an operation could not be given back, and goes on later", "error", err.Error(), "after", lease.String())
	}
}

// own selects the operation while it is ours to work on.
func (w *work) own() store.OperationFilter {
	return store.OperationFilter{ID: w.id, States: names(Waiting, Canary, Running), LeasedBy: w.owner}
}

// change changes the operation while it is ours.
func (w *work) change(ctx context.Context, c store.OperationChange) error {
	_, err := w.service.store.ChangeOperation(ctx, w.service.config.DB, w.own(), c)
	return err
}

// pause has the operation wait for a person.
func (w *work) pause(ctx context.Context, why string) error {
	w.log.Warn("an operation has paused itself", "why", why)
	return w.change(ctx, store.OperationChange{State: string(Paused), Note: &why, Free: true})
}
