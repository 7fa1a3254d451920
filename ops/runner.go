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
// operation is worked on by one at a time, and where one dies another goes on behind what it has done.
// It is safe for concurrent use.
type Runner struct {
	desk        *Desk
	projections *projection.Runner
	running     atomic.Bool
	owner       string

	mu    sync.Mutex
	ours  map[int64]bool
	freed chan struct{} // one of ours is over
}

// NewRunner makes a runner. The projections' runner may be nil: then operations on projections are left
// to processes that have one.
func NewRunner(d *Desk, projections *projection.Runner) (*Runner, error) {
	if d == nil {
		return nil, errors.New("ops: NewRunner: the desk is nil")
	}
	return &Runner{desk: d, projections: projections, owner: uuid.NewString(), ours: make(map[int64]bool), freed: make(chan struct{}, 1)}, nil
}

// Run carries out operations until ctx is cancelled, and then returns nil once the steps that are under
// way are done; what remains of an operation goes on elsewhere, or at the next Run. It asks the database
// every 10 s what there is to do, and at once for what was started at its own desk. Where the database
// cannot be reached it tries again. A second Run at the same time returns [ErrRunning].
func (r *Runner) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer r.running.Store(false)
	var working sync.WaitGroup
	defer working.Wait()
	failing := false
	for ctx.Err() == nil {
		wait, err := r.take(ctx, &working)
		if err != nil && !failing && ctx.Err() == nil {
			r.desk.config.Logger.Warn("operations cannot be looked for", "error", err.Error())
		}
		failing = err != nil
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.desk.started:
		case <-r.freed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// take begins to work on what is free, and tells when to look again.
func (r *Runner) take(ctx context.Context, working *sync.WaitGroup) (wait time.Duration, err error) {
	states := names(Waiting, Trying, Running)
	rows, err := r.desk.store.Operations(ctx, r.desk.config.DB, store.OperationFilter{States: states, Kinds: r.kinds()}, 100)
	if err != nil {
		return lookEvery, err
	}
	wait = lookEvery
	for i := len(rows) - 1; i >= 0; i-- { // the oldest first
		row := rows[i]
		soon := row.StartsAt.Sub(row.Now.Time)
		if row.LeasedUntil.After(row.Now.Time) {
			soon = max(soon, row.LeasedUntil.Sub(row.Now.Time))
		}
		if soon > 0 {
			wait = min(wait, soon)
			continue
		}
		if !r.ourOwn(row.ID) {
			continue
		}
		leased, err := r.desk.store.LeaseOperation(ctx, r.desk.config.DB, store.OperationFilter{ID: row.ID, States: states, Free: true}, r.owner, lease)
		if err != nil || !leased {
			r.over(row.ID)
			if err != nil {
				return wait, err
			}
			continue
		}
		working.Go(func() {
			defer r.over(row.ID)
			r.work(ctx, row.ID)
		})
	}
	return wait, nil
}

// kinds are the actions that this runner can carry out.
func (r *Runner) kinds() (names []string) {
	for a, kind := range kinds() {
		if kind.apply == nil || r.projections != nil {
			names = append(names, string(a))
		}
	}
	return names
}

// ourOwn notes that an operation is worked on here, unless it is already, or there are too many.
func (r *Runner) ourOwn(id int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ours[id] || len(r.ours) >= operationsAt {
		return false
	}
	r.ours[id] = true
	return true
}

func (r *Runner) over(id int64) {
	r.mu.Lock()
	delete(r.ours, id)
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// work carries out an operation that is leased, until it is over, is not ours any more, or ctx ends.
func (r *Runner) work(ctx context.Context, id int64) {
	w := &work{Runner: r, id: id, log: r.desk.config.Logger.With("operation", id)}
	defer w.free(context.WithoutCancel(ctx))
	failures := 0
	for ctx.Err() == nil {
		wait, over, err := w.step(ctx)
		switch {
		case over:
			return
		case err != nil && ctx.Err() == nil:
			if failures++; failures >= mostFailures {
				_ = w.pause(ctx, fmt.Sprintf("it failed %d times in a row: %s", failures, err)) // else it is taken up again
				return
			}
			w.log.Warn("a step of an operation failed, and is tried again", "error", err.Error())
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
	id   int64
	pace pace
	log  *slog.Logger
	// looked is when it was last asked whether failures come back.
	looked time.Time
}

// free gives the operation back, if it is still ours.
func (w *work) free(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := w.desk.store.ChangeOperation(ctx, w.desk.config.DB, w.own(), store.OperationChange{Free: true}); err != nil {
		w.log.Warn("an operation could not be given back, and goes on later", "error", err.Error(), "after", lease.String())
	}
}

// own selects the operation while it is ours to work on.
func (w *work) own() store.OperationFilter {
	return store.OperationFilter{ID: w.id, States: names(Waiting, Trying, Running), LeasedBy: w.owner}
}

// change changes the operation while it is ours.
func (w *work) change(ctx context.Context, c store.OperationChange) error {
	_, err := w.desk.store.ChangeOperation(ctx, w.desk.config.DB, w.own(), c)
	return err
}

// pause has the operation wait for a person.
func (w *work) pause(ctx context.Context, why string) error {
	w.log.Warn("an operation has paused itself", "why", why)
	return w.change(ctx, store.OperationChange{State: string(Paused), Note: &why, Free: true})
}

// pace lets so many messages pass in a second, beginning with those of a tick: who is killed again and
// again shall get on, too. Of what has not passed it keeps a second's worth.
type pace struct {
	last time.Time
	left float64
}

// now tells how many messages may pass.
func (p *pace) now(rate int64) int {
	now := time.Now()
	if p.last.IsZero() {
		p.last = now.Add(-tick)
	}
	p.left = min(p.left+now.Sub(p.last).Seconds()*float64(rate), max(float64(rate), 1))
	p.last = now
	return int(p.left)
}

// passed notes that so many have.
func (p *pace) passed(n int) { p.left -= float64(n) }
