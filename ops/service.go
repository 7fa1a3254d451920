package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Config sets up a [Service].
type Config struct {
	// DB is the database with the library's tables. It is required.
	DB *bun.DB
	// ReadDB is where people look, such as a replica. Defaults to DB.
	ReadDB *bun.DB
	// Registry has the tables, and the consumers, if this program has some. It is required.
	Registry *bus.Registry
	// Redact shows what an operator may see of a content. Nil shows nothing of any; [ShowAll] shows
	// all. A search for a text in errors, or for a header, could reveal what is hidden. So Redact
	// is given what is looked for, as a content; if it does not show that as it is, the search is
	// [ErrRedacted]. Redact is safe if it hides by place, not by what a value looks like. It may be
	// called by many goroutines at once, and should not panic.
	Redact func(context.Context, Content) Content
	// Audit is called with each change before that is committed, where it is one transaction. An
	// error refuses the change. It has a minute: on PostgreSQL the server then ends the
	// transaction.
	Audit func(context.Context, Change) error
	// Logger gets a line for each change. Defaults to slog.Default.
	Logger *slog.Logger
	// UndoWindow is for how long after its start an operation waits, in which it can be undone without
	// a trace. Defaults to 10 s; negative values mean none.
	UndoWindow time.Duration
}

// Service is where people look after the messages of a database. It starts nothing, and is safe for
// concurrent use. Make it with [New].
type Service struct {
	config      Config
	store       *store.Store
	admin       *admin.Client
	poisoned    *poison.Store
	schedules   *schedule.Scheduler
	projections *projection.Admin
	looks       chan struct{} // holds one for each that may look at once
	previews    chan struct{} // and for each that may preview a change
	started     chan struct{} // wakes a Runner of this service once an operation was started
	overview    overview
}

const (
	looksAtOnce    = 2
	lookWait       = 200 * time.Millisecond // for one of these to be free
	lookTime       = 3 * time.Second        // of each look
	previewsAtOnce = 2
	previewTime    = 10 * time.Second // of each preview, with what it waits
	undoWindow     = 10 * time.Second
)

// New makes a service. It reports everything that is wrong with its configuration at once, and does
// not touch the database.
func New(c Config) (*Service, error) {
	var errs []error
	if c.DB == nil {
		errs = append(errs, errors.New("config: DB is nil"))
	}
	if c.Registry == nil {
		errs = append(errs, errors.New("config: Registry is nil"))
	}
	if c.DB != nil && c.ReadDB != nil && c.DB.Dialect().Name() != c.ReadDB.Dialect().Name() {
		errs = append(errs, fmt.Errorf("config: ReadDB speaks %q and DB %q: they must be the same", c.ReadDB.Dialect().Name(), c.DB.Dialect().Name()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("ops: new: %w", err)
	}
	if c.ReadDB == nil {
		c.ReadDB = c.DB
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.UndoWindow == 0 {
		c.UndoWindow = undoWindow
	}
	d := &Service{config: c, looks: make(chan struct{}, looksAtOnce), previews: make(chan struct{}, previewsAtOnce), started: make(chan struct{}, 1)}
	var err [5]error
	d.store, err[0] = store.For(c.DB.Dialect().Name(), c.Registry.Tables())
	d.admin, err[1] = admin.NewClient(c.Registry)
	d.poisoned, err[2] = poison.NewStore(c.Registry)
	d.schedules, err[3] = schedule.NewScheduler(c.Registry, schedule.SchedulerConfig{})
	d.projections, err[4] = projection.NewAdmin(c.Registry)
	if err := errors.Join(err[:]...); err != nil {
		return nil, fmt.Errorf("ops: new: %w", err)
	}
	return d, nil
}

// Session is the service as one principal has it. It is safe for concurrent use.
type Session struct {
	service *Service
	who     Principal
}

// As returns the session of a principal. One without a name may do nothing.
func (d *Service) As(who Principal) *Session { return &Session{service: d, who: who} }
