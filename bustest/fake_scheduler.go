package bustest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
)

// FakeScheduler has the methods of *schedule.Scheduler and keeps the schedules
// in memory, for tests without a database: the handles it is given may be nil.
// Nothing ever fires. The zero value works. Look at what was scheduled with
// [RequireScheduled] or List. It is safe for concurrent use; set the fields first.
type FakeScheduler struct {
	// Registry has the fake refuse payloads that nobody consumes. Defaults to
	// none: every payload is taken, and encoded as JSON.
	Registry *bus.Registry
	// Now is the clock from which the next fire time is counted. Defaults to
	// time.Now.
	Now func() time.Time
	// Err is what every method returns instead of doing anything. Defaults to
	// nil.
	Err error

	mu     sync.Mutex
	rows   []schedule.Schedule
	lastID int64
}

// Schedule notes a schedule and returns its id; the real one is
// schedule.Scheduler.Schedule. A name that exists is replaced.
func (s *FakeScheduler) Schedule(ctx context.Context, _ bun.IDB, payload bus.Payload, expression, zone string, options ...schedule.Option) (int64, error) {
	return s.write(s.row(ctx, payload, expression, zone, append(options[:len(options):len(options)], func(s *schedule.Schedule) error {
		if s.Name == "" {
			return fmt.Errorf("%w: the schedule has no name: schedule.Name is needed, or ScheduleAnother for one more with every call", bus.ErrBadOption)
		}
		return nil
	})))
}

// ScheduleAnother notes one more schedule without a name; the real one is
// schedule.Scheduler.ScheduleAnother.
func (s *FakeScheduler) ScheduleAnother(ctx context.Context, _ bun.IDB, payload bus.Payload, expression, zone string, options ...schedule.Option) (int64, error) {
	return s.write(s.row(ctx, payload, expression, zone, append(options[:len(options):len(options)], func(s *schedule.Schedule) error {
		if s.Name != "" {
			return fmt.Errorf("%w: ScheduleAnother makes schedules without a name, Schedule those with one", bus.ErrBadOption)
		}
		return nil
	})))
}

// Sync notes the schedules of a set, and drops others with the tag; the real one is
// schedule.Scheduler.Sync.
func (s *FakeScheduler) Sync(ctx context.Context, _ bun.IDB, tag string, set ...schedule.Declared) error {
	mistakes := schedule.Tag(tag)(new(schedule.Schedule))
	rows, names := make([]schedule.Schedule, len(set)), make(map[string]bool, len(set))
	for i, d := range set {
		options := []schedule.Option{schedule.Name(d.Name), func(s *schedule.Schedule) error { s.Tag = tag; return nil }}
		for key, value := range d.Headers {
			options = append(options, schedule.Header(key, value))
		}
		row, err := s.row(ctx, d.Payload, d.Expression, d.Zone, options)
		if names[d.Name] {
			err = errors.Join(err, fmt.Errorf("%w: the name is declared twice", bus.ErrBadOption))
		}
		if err != nil {
			mistakes = errors.Join(mistakes, fmt.Errorf("schedule %d %q: %w", i, d.Name, err))
		}
		rows[i], names[d.Name] = row, true
	}
	for _, row := range rows {
		if mistakes == nil {
			_, mistakes = s.write(row, nil)
		}
	}
	if mistakes != nil {
		return fmt.Errorf("schedule: sync %q: %w", tag, mistakes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = slices.DeleteFunc(s.rows, func(row schedule.Schedule) bool { return row.Tag == tag && !names[row.Name] })
	return nil
}

func (s *FakeScheduler) write(row schedule.Schedule, err error) (int64, error) {
	what := "write schedule"
	if row.Name != "" {
		what = fmt.Sprintf("write schedule %q", row.Name)
	}
	if err != nil {
		return 0, fmt.Errorf("schedule: %s: %w", what, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.rows, func(old schedule.Schedule) bool { return row.Name != "" && old.Name == row.Name }); i >= 0 {
		old := s.rows[i]
		row.ID, row.CreatedAt, row.Paused = old.ID, old.CreatedAt, old.Paused
		if old.Expression == row.Expression && old.Zone == row.Zone {
			row.NextFire = old.NextFire
		}
		s.rows[i] = row
		return row.ID, nil
	}
	s.lastID++
	row.ID = s.lastID
	s.rows = append(s.rows, row)
	return row.ID, nil
}

// row checks what the real scheduler checks.
func (s *FakeScheduler) row(ctx context.Context, payload bus.Payload, expression, zone string, options []schedule.Option) (row schedule.Schedule, err error) {
	if err := cmp.Or(s.Err, ctx.Err()); err != nil {
		return row, err
	}
	var mistakes error
	for i, option := range options {
		if option == nil {
			mistakes = errors.Join(mistakes, fmt.Errorf("%w: option %d is nil", bus.ErrBadOption, i))
			continue
		}
		mistakes = errors.Join(mistakes, option(&row))
	}
	if row.PayloadType, row.Payload, err = encode(s.Registry, payload); err == nil {
		m := bus.Message{PayloadType: row.PayloadType, Payload: row.Payload, Headers: row.Headers}
		err = m.Check(bus.DefaultMaxPayload)
	}
	row.CreatedAt = s.now()
	var badTime error
	row.NextFire, badTime = nextFire(expression, zone, row.CreatedAt)
	row.Expression, row.Zone = expression, zone
	return row, errors.Join(mistakes, err, bus.CheckKey("name", row.Name), bus.CheckKey("tag", row.Tag), badTime)
}

func (s *FakeScheduler) now() time.Time {
	if s.Now == nil {
		return time.Now().UTC()
	}
	return s.Now()
}

func nextFire(expression, zone string, from time.Time) (time.Time, error) {
	parsed, expressionErr := cron.Parse(expression)
	location, zoneErr := cron.LoadLocation(zone)
	if err := errors.Join(expressionErr, zoneErr); err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", schedule.ErrExpression, err)
	}
	next, err := parsed.Next(from, location)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", schedule.ErrExpression, err)
	}
	return next, nil
}

// List returns the schedules that match, in the order in which they were made.
func (s *FakeScheduler) List(_ context.Context, _ bun.IDB, filter schedule.Filter) ([]schedule.Schedule, error) {
	if err := errors.Join(s.Err, bus.CheckKey("name", filter.Name), bus.CheckKey("tag", filter.Tag)); err != nil {
		return nil, fmt.Errorf("schedule: list: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []schedule.Schedule
	for _, row := range s.rows {
		if (filter.Name == "" || filter.Name == row.Name) && (filter.Tag == "" || filter.Tag == row.Tag) {
			out = append(out, row)
		}
	}
	return out, nil
}

// DeleteByTag deletes the schedules with the tag and returns how many there were.
func (s *FakeScheduler) DeleteByTag(_ context.Context, _ bun.IDB, tag string) (int, error) {
	if tag == "" {
		return 0, fmt.Errorf("schedule: delete by tag: %w: the tag is empty", bus.ErrBadOption)
	}
	if err := errors.Join(s.Err, bus.CheckKey("tag", tag)); err != nil {
		return 0, fmt.Errorf("schedule: delete by tag %q: %w", tag, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.rows)
	s.rows = slices.DeleteFunc(s.rows, func(row schedule.Schedule) bool { return row.Tag == tag })
	return before - len(s.rows), nil
}

// DeleteByID deletes one schedule, or returns schedule.ErrNotFound.
func (s *FakeScheduler) DeleteByID(_ context.Context, _ bun.IDB, id int64) error {
	return s.one("delete", id, func(i int) error {
		s.rows = slices.Delete(s.rows, i, i+1)
		return nil
	})
}

// Pause marks a schedule as paused.
func (s *FakeScheduler) Pause(_ context.Context, _ bun.IDB, id int64) error {
	return s.one("pause", id, func(i int) error {
		s.rows[i].Paused = true
		return nil
	})
}

// Resume takes the mark of [FakeScheduler.Pause] away, and skips the fire times
// missed meanwhile.
func (s *FakeScheduler) Resume(_ context.Context, _ bun.IDB, id int64) error {
	return s.one("resume", id, func(i int) (err error) {
		if !s.rows[i].Paused {
			return nil
		}
		s.rows[i].Paused = false
		s.rows[i].NextFire, err = nextFire(s.rows[i].Expression, s.rows[i].Zone, s.now())
		return err
	})
}

// RunNow changes nothing, since nothing fires: it only looks for the schedule.
func (s *FakeScheduler) RunNow(_ context.Context, _ bun.IDB, id int64) error {
	return s.one("run now", id, func(int) error { return nil })
}

// UpdateSchedule gives a schedule another expression and zone.
func (s *FakeScheduler) UpdateSchedule(_ context.Context, _ bun.IDB, id int64, expression, zone string) error {
	next, err := nextFire(expression, zone, s.now())
	if err != nil {
		return fmt.Errorf("schedule: update schedule %d: %w", id, err)
	}
	return s.one("update schedule", id, func(i int) error {
		s.rows[i].Expression, s.rows[i].Zone, s.rows[i].NextFire = expression, zone, next
		return nil
	})
}

// UpdatePayload gives a schedule another payload.
func (s *FakeScheduler) UpdatePayload(_ context.Context, _ bun.IDB, id int64, payload bus.Payload) error {
	payloadType, text, err := encode(s.Registry, payload)
	if err == nil {
		m := bus.Message{PayloadType: payloadType, Payload: text}
		err = m.Check(bus.DefaultMaxPayload)
	}
	if err != nil {
		return fmt.Errorf("schedule: update payload of %d: %w", id, err)
	}
	return s.one("update payload of", id, func(i int) error {
		s.rows[i].PayloadType, s.rows[i].Payload = payloadType, text
		return nil
	})
}

// one changes the schedule with the id, which must exist.
func (s *FakeScheduler) one(what string, id int64, change func(i int) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.Err
	if err == nil {
		err = schedule.ErrNotFound
		if i := slices.IndexFunc(s.rows, func(row schedule.Schedule) bool { return row.ID == id }); i >= 0 {
			err = change(i)
		}
	}
	if err != nil {
		return fmt.Errorf("schedule: %s %d: %w", what, id, err)
	}
	return nil
}

func (s *FakeScheduler) scheduled() ([]schedule.Schedule, bus.Codec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rows), codecOf(s.Registry), nil
}
