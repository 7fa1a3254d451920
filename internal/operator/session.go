package operator

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errtype"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/minutes"
	"github.com/asyncmonolith/asyncmonolith-go/internal/opsaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/overview"
	"github.com/asyncmonolith/asyncmonolith-go/internal/pending"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// Overview is a summary of queues, processes and operations.
type Overview = overview.Overview[ops.Operation, ops.Finding]

// Unseen lists parts of an [Overview] that could not be read.
type Unseen = overview.Unseen

// BlockedKey is a key whose messages wait for a poisoned one.
type BlockedKey = pending.BlockedKey

// MinuteStats counts the outcomes of a consumer's messages in one minute.
type MinuteStats = minutes.Stats

// Histogram counts durations in buckets.
type Histogram = minutes.Histogram

// Crash is the loss of a process while it held a message.
type Crash = pending.Crash

// Program is what runs in one process of the operating system.
type Program = overview.Program

// Programs groups processes by program: lost ones, then live ones, then those that have stopped.
func Programs(processes []admin.Process) []Program { return overview.All(processes) }

// Stop describes why messages of a consumer do not start, with ages as of now.
func Stop(e admin.Explanation, now time.Time) string { return overview.Stop(e, now) }

// ErrorTemplate is the first line of an error text with marks in the place of what differs from run
// to run, such as numbers and what is quoted.
func ErrorTemplate(text string) string {
	shape := marks.ReplaceAllString(strings.ReplaceAll(errtype.Shape(text), "#", "…"), "…")
	return addresses.ReplaceAllString(shape, "$1")
}

// ErrorKind is the type of an error for people, or empty for types that say nothing.
func ErrorKind(name string) string { return overview.ErrorKind(name) }

// Immutable.
var (
	// marks are several in a row, such as those of an address with a port.
	marks = regexp.MustCompile(`…([.: ]?…)+`)
	// addresses begin with two slashes in a shape.
	addresses = regexp.MustCompile(`(^|[^:/])//`)
)

type access = opsaccess.Access[ops.Action, ops.Change, ops.Content, Overview]

// Functions of package ops; immutable.
var (
	// CreatedBy reports whether the principal planned or made the operation.
	CreatedBy = hooks.Function[func(o ops.Operation, p ops.Principal) bool]("ops.CreatedBy")

	// RunOnly is [ops.Runner.Run] for one operation. It also returns nil once the operation is
	// finished, has paused itself, or does not exist.
	RunOnly = hooks.Function[func(ctx context.Context, r *ops.Runner, id int64) error]("ops.RunOnly")

	accessOf = hooks.Function[func(s *ops.Session) *access]("ops.Access")
)

// Session is the service for one principal. It is safe for concurrent use. Make it with [As].
type Session struct {
	*ops.Session
	access *access
}

// As returns the session of a principal. A principal without a name may do nothing.
func As(service *ops.Service, principal ops.Principal) *Session {
	session := service.As(principal)
	return &Session{Session: session, access: accessOf(session)}
}

// May returns ops.ErrForbidden unless the session's principal may do an action to a consumer. The consumer is
// empty if the action concerns several or none. A Principal.Allow that panics, or does not answer in
// time, refuses.
func May(s *Session, a ops.Action, consumer string) error { return s.access.May(a, consumer) }

// LastOverview returns the last overview, however old, without a query. It is empty if there is none.
// due reports whether a new one is due: call Overview.
func (s *Session) LastOverview(ctx context.Context) (o Overview, due bool, err error) {
	return s.access.LastOverview(ctx)
}

// Messages returns what the principal may do with pending messages.
func (s *Session) Messages() *Messages { return &Messages{s.access} }

// Poisoned returns what the principal may do with poisoned messages.
func (s *Session) Poisoned() *Poisoned { return &Poisoned{s.access} }

// Consumers returns what the principal may do with consumers.
func (s *Session) Consumers() *Consumers { return &Consumers{s.access} }

// Schedules returns what the principal may do with schedules.
func (s *Session) Schedules() *Schedules { return &Schedules{s.access} }

// Projections returns what the principal may do with projections and log forwarders.
func (s *Session) Projections() *Projections { return &Projections{s.access} }

// Overview returns a summary that may be some seconds old. It includes each change made with this
// service.
func (s *Session) Overview(ctx context.Context) (Overview, error) { return s.access.Overview(ctx) }

// CachedOverview returns the cached overview without waiting, if it includes all changes of this
// service and expired at most 10 s ago. Otherwise it is [Session.Overview]. due reports whether
// the overview has expired: show it, then call Overview.
func (s *Session) CachedOverview(ctx context.Context) (o Overview, due bool, err error) {
	return s.access.CachedOverview(ctx)
}

// Processes lists the processes seen within a duration, the last seen first.
// A principal that may not read contents does not see why circuits are open.
func (s *Session) Processes(ctx context.Context, within time.Duration) ([]admin.Process, error) {
	found, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) ([]admin.Process, error) {
		return s.access.Admin.Processes(ctx, db, within)
	})
	found, _ = overview.Redacted(found, nil, func(consumer, text string) string {
		return s.access.Text(ctx, ops.Content{Consumer: consumer}, text)
	})
	return found, err
}

// HasRunner reports whether a live program runs an [ops.Runner] for an operation and, unless its name is
// empty, a projection. The operation is 0 for a new one.
func (s *Session) HasRunner(ctx context.Context, operation int64, projection string) (bool, error) {
	processes, err := s.Processes(ctx, overview.LostWithin)
	return overview.HasRunner(processes, operation, projection), err
}

// FindInstallations lists up to 20 schemas and prefixes that hold tables of this library and are
// visible to the database user. Use it if the registry's tables are not found.
func (s *Session) FindInstallations(ctx context.Context) ([]bus.Tables, error) {
	return look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) ([]bus.Tables, error) {
		return s.access.Store.Schema.Installed(ctx, db)
	})
}

// Handles reports whether the process handles messages with that stored consumer and payload type.
func Handles(p admin.Process, consumer, payloadType string) bool {
	return slices.ContainsFunc(p.Consumers, func(c admin.ProcessConsumer) bool { return heartbeat.Consumer(c).Takes(consumer, payloadType) })
}

// look runs a query for a principal that may do the action.
func look[T any](
	ctx context.Context, s *access, a ops.Action, consumer string, fn func(ctx context.Context, db bun.IDB) (T, error),
) (result T, err error) {
	if err := s.May(a, consumer); err != nil {
		return result, fmt.Errorf("ops: %s: %w", a, err)
	}
	err = s.Look(ctx, func(ctx context.Context, db bun.IDB) error {
		result, err = fn(ctx, db)
		return err
	})
	return result, err
}
