package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
)

// Errors of this package; use errors.Is. What is wrong with a payload, a name
// or a header is one of the errors of package bus.
var (
	// ErrNotFound: there is no schedule with that id.
	ErrNotFound = errors.New("no such schedule")
	// ErrExpression: a cron expression or time zone cannot be used. It wraps the
	// error of schedule/cron that says why.
	ErrExpression = errors.New("expression or time zone cannot be used")
)

// Config sets up a [Scheduler]. The zero value works.
type Config struct {
	// MaxPayload is the largest encoded payload, in bytes. Defaults to 1 MiB.
	MaxPayload int
	// Headers are added to every schedule that is written, and so to each of
	// its messages; a trace context, for instance. Defaults to none.
	Headers func(ctx context.Context) map[string]string
}

// Scheduler writes schedules in the caller's transaction. It holds no database
// and is safe for concurrent use.
type Scheduler struct {
	registry *bus.Registry
	config   Config
	stores   map[dialect.Name]*store.Store
}

// NewScheduler makes a scheduler for payloads of the registry's consumers.
func NewScheduler(registry *bus.Registry, config Config) (*Scheduler, error) {
	if registry == nil {
		return nil, errors.New("schedule: NewScheduler: the registry is nil")
	}
	if config.MaxPayload < 0 {
		return nil, fmt.Errorf("schedule: Config.MaxPayload %d: 1 or more is allowed", config.MaxPayload)
	}
	if config.MaxPayload == 0 {
		config.MaxPayload = bus.DefaultMaxPayload
	}
	return &Scheduler{registry: registry, config: config, stores: store.All(registry.Tables())}, nil
}

// Option changes one schedule.
type Option func(*entry)

// entry is a schedule on its way to the table.
type entry struct {
	name, tag string
	headers   map[string]string
}

// Tag groups schedules, for [Scheduler.DeleteByTag] and [Scheduler.List].
func Tag(tag string) Option { return func(e *entry) { e.tag = tag } }

// Name makes the schedule unique: scheduling the same name again replaces it,
// so that a schedule written at every boot exists once. It keeps its next fire
// time as long as expression and zone stay the same.
func Name(name string) Option { return func(e *entry) { e.name = name } }

// Header adds a header to every message of the schedule.
func Header(key, value string) Option {
	return func(e *entry) {
		if e.headers == nil {
			e.headers = make(map[string]string)
		}
		e.headers[key] = value
	}
}

// Schedule writes a schedule that produces the payload, for each of its
// consumers, whenever the cron expression fires in the time zone, and returns
// its id. The expression has six fields, seconds first; five are accepted, as
// are names, L, W, #, macros such as @daily, and @every. The zone is an IANA
// name such as "Europe/Amsterdam", or "UTC"; package schedule/cron has the rules
// for daylight saving time.
func (s *Scheduler) Schedule(ctx context.Context, db bun.IDB, payload bus.Payload, expression, zone string, options ...Option) (int64, error) {
	row, err := s.row(ctx, payload, expression, zone, options)
	if err != nil {
		return 0, fmt.Errorf("schedule: %w", err)
	}
	var id int64
	err = s.writing(ctx, db, func(st *store.Store, tx bun.Tx) error {
		now, err := s.clock(ctx, st, tx, row.Name)
		if err != nil {
			return err
		}
		next, err := nextFire(expression, zone, now)
		if err != nil {
			return err
		}
		row.AvailableAfter = store.Moment{Time: next}
		id, err = st.SaveSchedule(ctx, tx, row)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("schedule: %w", err)
	}
	return id, nil
}

// clock reads the database's clock, once nobody is firing the schedule that is to
// be replaced, if there is one: else the same instant could be fired twice.
func (s *Scheduler) clock(ctx context.Context, st *store.Store, tx bun.Tx, name string) (time.Time, error) {
	if name == "" {
		return st.Now(ctx, tx)
	}
	_, now, err := st.LockSchedules(ctx, tx, store.ScheduleFilter{Name: name})
	return now, err
}

// row checks and encodes everything but the next fire time.
func (s *Scheduler) row(ctx context.Context, payload bus.Payload, expression, zone string, options []Option) (store.Schedule, error) {
	var e entry
	for i, option := range options {
		if option == nil {
			return store.Schedule{}, fmt.Errorf("%w: option %d is nil", bus.ErrBadOption, i)
		}
		option(&e)
	}
	if s.config.Headers != nil {
		for key, value := range s.config.Headers(ctx) {
			Header(key, value)(&e)
		}
	}
	payloadType, text, err := s.registry.Encode(payload)
	if err != nil {
		return store.Schedule{}, err
	}
	m := bus.Message{PayloadType: payloadType, Payload: text, Headers: e.headers}
	if err := errors.Join(m.Check(s.config.MaxPayload), bus.CheckKey("name", e.name), bus.CheckKey("tag", e.tag), checkExpression(expression, zone)); err != nil {
		return store.Schedule{}, err
	}
	row := store.Schedule{Name: e.name, Tag: e.tag, PayloadType: payloadType, Payload: text, CronExpression: expression, CronTimezone: zone}
	if len(e.headers) > 0 {
		if row.Headers, err = json.Marshal(e.headers); err != nil {
			return store.Schedule{}, fmt.Errorf("encode headers: %w", err)
		}
	}
	return row, nil
}

func checkExpression(expression, zone string) error {
	_, err := nextFire(expression, zone, time.Time{})
	return err
}

// nextFire returns the first fire time after from.
func nextFire(expression, zone string, from time.Time) (time.Time, error) {
	parsed, err := cron.Parse(expression)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrExpression, err)
	}
	location, err := cron.LoadLocation(zone)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrExpression, err)
	}
	if from.IsZero() {
		return time.Time{}, nil
	}
	next, err := parsed.Next(from, location)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrExpression, err)
	}
	return next, nil
}

// on returns the store for the handle's dialect, and the handle as it is used.
func (s *Scheduler) on(db bun.IDB) (*store.Store, bun.IDB, error) {
	db, err := store.Handle(db)
	if err != nil {
		return nil, nil, err
	}
	if st, ok := s.stores[db.Dialect().Name()]; ok {
		return st, db, nil
	}
	_, err = store.For(db.Dialect().Name(), s.registry.Tables())
	return nil, nil, err
}

// writing runs fn in the caller's transaction or one of its own, and then wakes
// this process's scheduled processors.
func (s *Scheduler) writing(ctx context.Context, db bun.IDB, fn func(st *store.Store, tx bun.Tx) error) error {
	st, db, err := s.on(db)
	if err != nil {
		return err
	}
	if err := store.InTx(ctx, db, func(tx bun.Tx) error { return fn(st, tx) }); err != nil {
		return err
	}
	_, inCallersTx := db.(bun.Tx)
	s.registry.Wakeups().Send(bus.Wake{Schedules: true, Expected: inCallersTx})
	return nil
}
