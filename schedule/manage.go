package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Schedule is a row of the table as [Scheduler.List] shows it.
type Schedule struct {
	ID          int64
	Name        string // empty: unnamed
	Tag         string // empty: untagged
	PayloadType string
	Payload     []byte // as the registry's codec encoded it
	Headers     map[string]string
	Expression  string
	Zone        string
	// NextFire is when it is due, on the database's clock.
	NextFire time.Time
	Paused   bool
	// LastFire is when it last fired; zero means never.
	LastFire time.Time
	// LastError says why it could not fire, as long as that lasts.
	LastError string
	CreatedAt time.Time
}

// Filter selects schedules. The zero value selects all.
type Filter struct {
	Name string
	Tag  string
}

// List returns the schedules that match, in the order in which they were written.
func (s *Scheduler) List(ctx context.Context, db bun.IDB, filter Filter) ([]Schedule, error) {
	var out []Schedule
	err := s.reading(db, func(st *store.Store) error {
		rows, err := st.Schedules(ctx, db, store.ScheduleFilter{Name: filter.Name, Tag: filter.Tag})
		for _, row := range rows {
			out = append(out, shown(row))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("schedule: list: %w", err)
	}
	return out, nil
}

func shown(row store.Schedule) Schedule {
	s := Schedule{ID: row.ID, Name: row.Name, Tag: row.Tag, PayloadType: row.PayloadType, Payload: row.Payload,
		Expression: row.CronExpression, Zone: row.CronTimezone, NextFire: row.AvailableAfter.Time, Paused: row.Paused,
		LastFire: row.LastFiredAt.Time, LastError: row.LastError, CreatedAt: row.CreatedAt.Time}
	if len(row.Headers) > 0 {
		_ = json.Unmarshal(row.Headers, &s.Headers) // written by us
	}
	return s
}

// DeleteByTag deletes the schedules with the tag, which must not be empty, and
// returns how many there were. Messages they have produced stay.
func (s *Scheduler) DeleteByTag(ctx context.Context, db bun.IDB, tag string) (n int, err error) {
	if tag == "" {
		return 0, fmt.Errorf("schedule: delete by tag: %w: the tag is empty", bus.ErrBadOption)
	}
	err = s.writing(db, func(st *store.Store) (err error) {
		n, err = st.DeleteSchedules(ctx, db, store.ScheduleFilter{Tag: tag})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("schedule: delete by tag %q: %w", tag, err)
	}
	return n, nil
}

// DeleteByID deletes one schedule. It returns [ErrNotFound] when there is none.
func (s *Scheduler) DeleteByID(ctx context.Context, db bun.IDB, id int64) error {
	return s.one(db, "delete", id, func(st *store.Store) (bool, error) {
		if id == 0 { // a zero filter would select all
			return false, nil
		}
		n, err := st.DeleteSchedules(ctx, db, store.ScheduleFilter{ID: id})
		return n > 0, err
	})
}

// Pause keeps a schedule from firing until [Scheduler.Resume].
func (s *Scheduler) Pause(ctx context.Context, db bun.IDB, id int64) error {
	return s.one(db, "pause", id, func(st *store.Store) (bool, error) {
		return st.UpdateSchedule(ctx, db, id, store.ScheduleChange{Paused: new(true)})
	})
}

// Resume lets a paused schedule fire again, from its next fire time on: what it
// missed while it was paused is skipped.
func (s *Scheduler) Resume(ctx context.Context, db bun.IDB, id int64) error {
	return s.one(db, "resume", id, func(st *store.Store) (bool, error) {
		rows, err := st.Schedules(ctx, db, store.ScheduleFilter{ID: id})
		if err != nil || id == 0 || len(rows) == 0 {
			return false, err
		}
		next, err := nextOnDatabaseClock(ctx, st, db, rows[0].CronExpression, rows[0].CronTimezone)
		if err != nil {
			return false, err
		}
		return st.UpdateSchedule(ctx, db, id, store.ScheduleChange{Paused: new(false), AvailableAfter: next})
	})
}

// RunNow makes a schedule due at once; after that it goes on as it was. A paused
// schedule stays paused until it is resumed.
func (s *Scheduler) RunNow(ctx context.Context, db bun.IDB, id int64) error {
	return s.one(db, "run now", id, func(st *store.Store) (bool, error) {
		return st.UpdateSchedule(ctx, db, id, store.ScheduleChange{Now: true})
	})
}

// UpdateSchedule gives a schedule another expression and zone.
func (s *Scheduler) UpdateSchedule(ctx context.Context, db bun.IDB, id int64, expression, zone string) error {
	if err := checkExpression(expression, zone); err != nil {
		return fmt.Errorf("schedule: update schedule %d: %w", id, err)
	}
	return s.one(db, "update schedule", id, func(st *store.Store) (bool, error) {
		next, err := nextOnDatabaseClock(ctx, st, db, expression, zone)
		if err != nil {
			return false, err
		}
		return st.UpdateSchedule(ctx, db, id, store.ScheduleChange{CronExpression: expression, CronTimezone: zone, AvailableAfter: next, Error: new("")})
	})
}

// UpdatePayload gives a schedule another payload, from its next fire on.
func (s *Scheduler) UpdatePayload(ctx context.Context, db bun.IDB, id int64, payload bus.Payload) error {
	payloadType, text, err := s.registry.Encode(payload)
	if err == nil {
		m := bus.Message{PayloadType: payloadType, Payload: text}
		err = m.Check(s.config.MaxPayload)
	}
	if err != nil {
		return fmt.Errorf("schedule: update payload of %d: %w", id, err)
	}
	return s.one(db, "update payload of", id, func(st *store.Store) (bool, error) {
		return st.UpdateSchedule(ctx, db, id, store.ScheduleChange{Payload: text, PayloadType: payloadType, Error: new("")})
	})
}

// one changes one schedule, which must exist.
func (s *Scheduler) one(db bun.IDB, what string, id int64, change func(*store.Store) (bool, error)) error {
	err := s.writing(db, func(st *store.Store) error {
		found, err := change(st)
		if err == nil && !found {
			return ErrNotFound
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("schedule: %s %d: %w", what, id, err)
	}
	return nil
}
