package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/overview"
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/internal/projections"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Config configures a [Service].
type Config struct {
	// DB is the database with the library's tables. It is required.
	DB *bun.DB
	// ReadDB is the database for queries, such as a replica. Defaults to DB.
	ReadDB *bun.DB
	// Registry has the tables, and this program's consumers, if any. It is required.
	Registry *bus.Registry
	// Redact returns what an operator may see of a [Content]. Nil hides everything; [ShowAll] shows
	// everything. Redact may be called concurrently. If it panics or takes longer than 3 s, the content
	// is hidden and a warning without contents is logged. After a call that took longer, all contents are
	// hidden for 10 s. Respect the context: while four calls have not returned, all contents are hidden.
	//
	// A search for an error text or a header could reveal hidden content. So Redact is called with
	// the searched content, also of each consumer and payload type that could match. Unless it returns
	// that unchanged, a search for an error text returns [ErrRedacted], and one for a header leaves out
	// such messages.
	// Redact by field name, not by value: a search could otherwise probe hidden values.
	Redact func(context.Context, Content) Content
	// Audit is called with each change in the transaction that writes its audit row. An error refuses
	// the change. If the change is made in that transaction, Changed is set. Otherwise (cancel,
	// reschedule, run now, export, operations) Audit runs before the change begins and Changed is 0.
	// If Audit panics or takes longer than 10 s, the change is refused. Respect the context: calls that
	// have not returned are left running, and while there are four of them every change is refused.
	Audit func(context.Context, Change) error
	// Logger logs each change. Defaults to slog.Default.
	Logger *slog.Logger
	// UndoWindow is how long a started operation waits before its first change. Until then
	// [Operations.Undo] cancels it. Defaults to 10 s; negative values mean none.
	UndoWindow time.Duration
}

// Service is the operators' interface to the messages of a database. It starts nothing and is safe
// for concurrent use. Make it with [New].
type Service struct {
	config      Config
	store       *store.Store
	admin       *admin.Client
	poisoned    *poisoned.Store
	schedules   *schedule.Scheduler
	projections *projections.Admin
	looks       chan struct{} // semaphore of concurrent queries
	previews    chan struct{} // semaphore of concurrent previews
	started     chan struct{} // wakes a Runner of this service
	overview    overview.Cache[Operation, Finding]
	unanswered  atomic.Int32 // calls of Audit and Allow that have not returned
	redaction   redaction
}

const (
	looksAtOnce    = 2
	lookWait       = time.Second     // for a free slot
	lookTime       = 3 * time.Second // of each query
	previewsAtOnce = 2
	previewTime    = 10 * time.Second // of each preview, including its wait
	undoWindow     = 10 * time.Second
)

// New makes a service. It reports all configuration errors at once and does not access the
// database.
func New(c Config) (*Service, error) {
	var errs []error
	if c.DB == nil {
		errs = append(errs, errors.New("config: DB is nil"))
	}
	if c.Registry == nil {
		errs = append(errs, errors.New("config: Registry is nil"))
	}
	if c.DB != nil && c.ReadDB != nil && c.DB.Dialect().Name() != c.ReadDB.Dialect().Name() {
		errs = append(errs,
			fmt.Errorf("config: ReadDB's dialect is %q, DB's is %q: they must be equal", c.ReadDB.Dialect().Name(), c.DB.Dialect().Name()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("ops: new: %w", err)
	}
	c.ReadDB, c.Logger, c.UndoWindow = cmp.Or(c.ReadDB, c.DB), cmp.Or(c.Logger, slog.Default()), cmp.Or(c.UndoWindow, undoWindow)
	d := &Service{
		config: c, looks: make(chan struct{}, looksAtOnce), previews: make(chan struct{}, previewsAtOnce),
		started: make(chan struct{}, 1),
	}
	var err [5]error
	d.store, err[0] = store.For(c.DB.Dialect().Name(), c.Registry.Tables())
	d.admin, err[1] = admin.NewClient(c.Registry)
	d.poisoned, err[2] = poisoned.NewStore(c.Registry)
	d.schedules, err[3] = schedule.NewScheduler(c.Registry, schedule.SchedulerConfig{})
	d.projections, err[4] = projections.NewAdmin(c.Registry)
	if err := errors.Join(err[:]...); err != nil {
		return nil, fmt.Errorf("ops: new: %w", err)
	}
	return d, nil
}

// As returns the session of a principal. A principal without a name may do nothing.
func (s *Service) As(principal Principal) *Session {
	return &Session{access{service: s, who: principal}}
}

// enter acquires a slot of a semaphore.
func (s *Service) enter(ctx context.Context, room chan struct{}, patience time.Duration) (leave func(), err error) {
	free := time.NewTimer(patience)
	defer free.Stop()
	select {
	case room <- struct{}{}:
		return func() { <-room }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-free.C:
		return nil, fmt.Errorf("ops: look: %w: all %d query slots were in use for %s", ErrBusy, cap(room), patience)
	}
}

func (s *Service) within(ctx context.Context, db *bun.DB, limit time.Duration, fn func(ctx context.Context, db bun.IDB) error) error {
	within, cancel := context.WithTimeoutCause(ctx, limit, ErrBusy)
	defer cancel()
	err := s.store.Briefly(within, db, limit, func(db bun.IDB) error { return fn(within, db) })
	if ctx.Err() == nil && (errors.Is(err, store.ErrLate) || err != nil && context.Cause(within) == ErrBusy) {
		err = fmt.Errorf("ops: look: %w: the database did not answer within %s", ErrBusy, limit)
	}
	return err
}
