package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// Errors of this package; use errors.Is. Invalid payloads, names and headers are errors of package
// bus.
var (
	// ErrNotFound is returned when no schedule has the id.
	ErrNotFound = errors.New("no such schedule")
	// ErrExpression is returned when a cron expression or time zone cannot be used. It wraps the
	// error of schedule/cron with the cause.
	ErrExpression = errors.New("expression or time zone cannot be used")
)

// errUnmade is returned by the zero Scheduler, which under fx is what a constructor gets.
var errUnmade = errors.New("the scheduler was not made by NewScheduler; under fx use it from OnStart on")

// SchedulerConfig configures a [Scheduler]. The zero value works.
type SchedulerConfig struct {
	// MaxPayload is the maximum size of an encoded payload, in bytes. Defaults to 1 MiB.
	MaxPayload int
	// Headers returns headers for every schedule that is written, and so for each of its messages:
	// a trace context, for instance. It is called once per [Scheduler.Upsert], with its context,
	// from many goroutines at once. The option [Header] overrides it. The result may be nil, and is
	// checked like headers of the option. Defaults to none.
	Headers func(ctx context.Context) map[string]string
}

// Scheduler writes schedules in the caller's transaction or, given a *bun.DB or bun.Conn, in its
// own. It holds no database and is safe for concurrent use. Make one with [NewScheduler]: methods
// of the zero value return an error.
//
// Every change wakes this process's processors, also in the caller's transaction. With the context
// of outbox.Producer.RunInTx, or of a transactional consumer, the handle must be that transaction:
// see outbox.ErrNotInTx. All methods return outbox.ErrSchemaOutdated when the tables are missing.
// They return database errors wrapped.
type Scheduler struct {
	registry *bus.Registry
	config   SchedulerConfig
	stores   store.Stores
}

// NewScheduler makes a scheduler for payloads of the registry's consumers. It reports a nil
// registry and all configuration errors at once.
func NewScheduler(registry *bus.Registry, config SchedulerConfig) (*Scheduler, error) {
	var errs []error
	if registry == nil {
		errs = append(errs, errors.New("schedule: NewScheduler: the registry is nil"))
	}
	if config.MaxPayload < 0 {
		errs = append(errs, fmt.Errorf("schedule: SchedulerConfig.MaxPayload %d: 1 or more is allowed", config.MaxPayload))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	config.MaxPayload = cmp.Or(config.MaxPayload, limits.Payload)
	return &Scheduler{registry: registry, config: config, stores: store.All(registry)}, nil
}

// Option changes one schedule: its name, tag, headers, or [SkipOverlap]. The last of two
// conflicting options wins. Other fields that an option sets are ignored.
type Option func(*Schedule) error

// Tag groups schedules for [Scheduler.DeleteByTag] and [Scheduler.List]. It has 1 to 255 bytes; an
// empty tag is bus.ErrInvalidOption. A schedule has at most one tag.
func Tag(tag string) Option {
	return func(s *Schedule) error {
		if s.Tag = tag; tag == "" {
			return fmt.Errorf("%w: the tag is empty", bus.ErrInvalidOption)
		}
		return nil
	}
}

// Name makes the schedule unique in its table. Writing the same name again updates the schedule, so
// a schedule written at every boot exists once. It has 1 to 255 bytes; an empty name is
// bus.ErrInvalidOption.
//
// An update replaces payload, tag, headers, expression and zone, including values set since by
// [Scheduler.UpdateSchedule] and [Scheduler.UpdatePayload]. It clears LastError. It keeps the id,
// the time of the last fire, and whether the schedule is paused. It keeps the next fire time if
// expression and zone are the same, unless the zone's rules have changed since; otherwise the next
// fire is the first of the new expression, as in [Scheduler.UpdateSchedule]. A [Scheduler.Trigger]
// that has not fired yet stays.
func Name(name string) Option {
	return func(s *Schedule) error {
		if s.Name = name; name == "" {
			return fmt.Errorf("%w: the name is empty", bus.ErrInvalidOption)
		}
		return nil
	}
}

// Header adds a header to every message of the schedule. All headers have at most 8 KiB together,
// and each needs a name. Names that begin with "asyncmonolith-" are reserved.
func Header(key, value string) Option {
	return func(s *Schedule) error {
		if s.Headers == nil {
			s.Headers = make(map[string]string)
		}
		s.Headers[key] = value
		return nil
	}
}

// SkipOverlap makes a fire skip each consumer that still has a pending message of the schedule:
// waiting, running or to be retried. A schedule that fires faster than its messages are consumed
// then keeps one message per consumer. It also applies to a [Scheduler.Trigger]. The messages carry
// an insert id: see outbox.InsertID.
func SkipOverlap() Option {
	return func(s *Schedule) error { s.SkipOverlap = true; return nil }
}

// Upsert writes a schedule that produces the payload, for each of its consumers, whenever the cron
// expression fires in the time zone. It returns the schedule's id. If a schedule has the name
// already, Upsert updates it and returns its id. It needs a [Name]: see [Scheduler.Create] for
// schedules without one. [Scheduler.Sync] declares all schedules of a program, and deletes those no
// longer declared.
//
// The expression has six fields, seconds first, or five. Names, L, W, #, macros such as @daily, and
// @every are allowed. The zone is an IANA name such as "Europe/Amsterdam", or "UTC". Package
// schedule/cron has the rules for daylight saving time. The first fire is the first after now, on
// the database's clock.
//
// Given a transaction, Upsert writes there, and the schedule exists once that commits. Given a
// *bun.DB or bun.Conn, it exists when Upsert returns.
//
// Invalid input is [ErrExpression], bus.ErrNoConsumer, bus.ErrInvalidPayload, bus.ErrTooLarge,
// bus.ErrInvalidText, bus.ErrInvalidOption or outbox.ErrNotInTx, joined if there are several; then
// nothing was sent to the database.
func (s *Scheduler) Upsert(
	ctx context.Context, db bus.Handle, payload bus.Payload, expression, zone string, options ...Option,
) (int64, error) {
	return s.write(ctx, db, payload, expression, zone, append(options[:len(options):len(options)], func(s *Schedule) error {
		if s.Name == "" {
			return fmt.Errorf("%w: the schedule has no name: use schedule.Name, or Create, which makes another schedule with every call",
				bus.ErrInvalidOption)
		}
		return nil
	}))
}

// Create is [Scheduler.Upsert] for a schedule without a name. Every call makes another one: use it
// on user requests, not at every boot. Delete the schedule by its id or [Tag]. A [Name] is
// bus.ErrInvalidOption.
func (s *Scheduler) Create(
	ctx context.Context, db bus.Handle, payload bus.Payload, expression, zone string, options ...Option,
) (int64, error) {
	return s.write(ctx, db, payload, expression, zone, append(options[:len(options):len(options)], func(s *Schedule) error {
		if s.Name != "" {
			return fmt.Errorf("%w: Create makes schedules without a name, Upsert those with one", bus.ErrInvalidOption)
		}
		return nil
	}))
}

func (s *Scheduler) write(
	ctx context.Context, db bus.Handle, payload bus.Payload, expression, zone string, options []Option,
) (int64, error) {
	row, err := s.row(ctx, payload, expression, zone, options)
	what := "write schedule"
	if row.Name != "" {
		what = fmt.Sprintf("write schedule %q", row.Name)
	}
	if err != nil {
		return 0, fmt.Errorf("schedule: %s: %w", what, err)
	}
	var id int64
	err = s.writing(ctx, db, func(st *store.Store, tx bun.Tx) error {
		id, err = s.save(ctx, st, tx, row)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("schedule: %s: %w", what, err)
	}
	return id, nil
}

// save writes a schedule with its [firstFire]. A schedule that exists with this expression
// and zone keeps its next fire time, unless that is [stale].
func (s *Scheduler) save(ctx context.Context, st *store.Store, tx bun.Tx, row store.Schedule) (int64, error) {
	old, now, err := s.replaced(ctx, st, tx, row.Name)
	if err != nil {
		return 0, err
	}
	next, err := firstFire(old, row.CronExpression, row.CronTimezone, now)
	if err != nil {
		return 0, err
	}
	row.AvailableAfter = store.Moment{Time: next}
	if old.CronExpression == row.CronExpression && old.CronTimezone == row.CronTimezone && stale(old, now, next) {
		if _, err := st.Schedules.Update(ctx, tx, old.ID, store.ScheduleChange{AvailableAfter: next}); err != nil {
			return 0, err
		}
	}
	return st.Schedules.Save(ctx, tx, row)
}

// stale reports whether a schedule's next fire time has to be set anew, to next: the rules of its
// zone have changed since, or the clock that @every counts by was set back. One that is due stays.
// So does an occurrence behind next: the clock was set back.
func stale(row store.Schedule, now, next time.Time) bool {
	at := row.AvailableAfter.Time
	if counts(row.CronExpression) {
		return at.After(next)
	}
	again, err := nextFire(row.CronExpression, row.CronTimezone, at.Add(-1))
	return err == nil && at.After(now) && !again.Equal(at)
}

// counts reports whether an expression counts from its last fire, as @every does, rather than by the calendar.
func counts(expression string) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(expression)), "@every")
}

// replaced locks the schedule that is to be replaced, and then reads the database's clock.
// Otherwise the same instant could fire twice. Without such a schedule it returns a zero one.
func (s *Scheduler) replaced(ctx context.Context, st *store.Store, tx bun.Tx, name string) (old store.Schedule, now time.Time, err error) {
	if name == "" {
		now, err = st.Now(ctx, tx)
		return old, now, err
	}
	rows, now, err := st.Schedules.Lock(ctx, tx, store.ScheduleFilter{Name: name})
	if len(rows) > 0 {
		old = rows[0]
	}
	return old, now, err
}

// row checks and encodes everything but the next fire time. With an error the row still has its
// name.
func (s *Scheduler) row(ctx context.Context, payload bus.Payload, expression, zone string, options []Option) (store.Schedule, error) {
	e, mistakes := s.apply(ctx, options)
	row := store.Schedule{Name: e.Name, Tag: e.Tag, CronExpression: expression, CronTimezone: zone}
	if e.SkipOverlap {
		e.Headers = with(e.Headers, skipOverlapHeader, "1")
	}
	payloadType, text, schema, err := s.encode(payload, e.Headers)
	if schema > 1 {
		e.Headers = with(e.Headers, store.SchemaHeader, strconv.Itoa(schema))
	}
	err = errors.Join(mistakes, err, limits.CheckKey("name", e.Name), limits.CheckKey("tag", e.Tag), checkExpression(expression, zone))
	if err != nil {
		return row, err
	}
	row.PayloadType, row.Payload = payloadType, text
	if len(e.Headers) > 0 {
		if row.Headers, err = json.Marshal(e.Headers); err != nil {
			return row, fmt.Errorf("encode headers: %w", err)
		}
	}
	return row, nil
}

// encode encodes a payload and checks that it may be stored.
func (s *Scheduler) encode(payload bus.Payload, headers map[string]string) (payloadType string, text []byte, schema int, err error) {
	if s.registry == nil {
		return "", nil, 0, errUnmade
	}
	if payloadType, text, err = access.Encode(s.registry, payload); err == nil {
		m := bus.Message{PayloadType: payloadType, Payload: text, Value: payload, Headers: headers}
		schema = access.Schema(s.registry, &m)
		if err = access.CheckMessage(&m, s.config.MaxPayload); err == nil {
			m.Value = nil // a fire has only the stored payload to read the key from
			err = access.SetKey(s.registry, &m)
		}
	}
	return payloadType, text, schema, err
}

// apply applies the options on top of the configured headers.
func (s *Scheduler) apply(ctx context.Context, options []Option) (e Schedule, mistakes error) {
	if s.config.Headers != nil {
		e.Headers = maps.Clone(s.config.Headers(ctx))
	}
	for i, option := range options {
		if option == nil {
			mistakes = errors.Join(mistakes, fmt.Errorf("%w: option %d is nil", bus.ErrInvalidOption, i))
			continue
		}
		mistakes = errors.Join(mistakes, option(&e))
	}
	return e, errors.Join(mistakes, store.CheckHeaders(e.Headers))
}

// writing runs fn in the caller's transaction or its own, and then wakes this process's schedule
// processors.
func (s *Scheduler) writing(ctx context.Context, db bus.Handle, fn func(st *store.Store, tx bun.Tx) error) error {
	return s.stores.Through(ctx, db, errUnmade, func(st *store.Store, db bun.IDB) error {
		if err := txn.InTx(ctx, db, func(tx bun.Tx) error { return fn(st, tx) }); err != nil {
			return dberr.Explained(err)
		}
		txn.Announce(ctx, db, s.registry, wakeup.Wake{Schedules: true})
		return nil
	})
}
