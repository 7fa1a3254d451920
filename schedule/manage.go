package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Schedule is a row of the table as [Scheduler.List] shows it. Its instants are
// in UTC, on the database's clock.
type Schedule struct {
	ID          int64             `json:"id"`
	Name        string            `json:"name,omitempty"` // empty: unnamed
	Tag         string            `json:"tag,omitempty"`  // empty: untagged
	PayloadType string            `json:"payload_type"`
	Payload     []byte            `json:"-"`                 // as the registry's codec encoded it
	Headers     map[string]string `json:"headers,omitempty"` // nil: none
	Expression  string            `json:"expression"`        // as it was written
	Zone        string            `json:"zone"`
	// NextFire is when it fires next. While it is paused, that is when it would
	// have; [Scheduler.Resume] sets it anew. One that stays in the past although
	// processors run has a payload type that none of them has registered: they
	// log a warning.
	NextFire time.Time `json:"next_fire,omitzero"`
	Paused   bool      `json:"paused"`
	// LastFire is when it last fired; zero means never.
	LastFire time.Time `json:"last_fire,omitzero"`
	// LastError says why it could not fire: an expression, zone or payload that
	// this version of the program cannot read, or an error of the produce chain.
	// It is tried again after a minute, and the text goes with the next fire or
	// with an update. At most 8 KiB.
	LastError string `json:"last_error,omitempty"`
	// CreatedAt is when it was written first.
	CreatedAt time.Time `json:"created_at,omitzero"`
}

// MarshalJSON implements json.Marshaler: the payload is as it is stored when that is JSON,
// else a string. It is for output only: what is unmarshalled from it has no payload.
func (s Schedule) MarshalJSON() ([]byte, error) {
	type plain Schedule
	return json.Marshal(struct {
		plain
		Payload store.PayloadText `json:"payload,omitempty"`
	}{plain(s), s.Payload})
}

// Filter selects schedules. Fields that are set must match exactly, and all of
// them. The zero value selects all.
type Filter struct {
	Name string
	Tag  string
}

// List returns the schedules that match, in the order in which they were first
// written. It returns all of them, payloads included, without a limit: keep
// schedules to what a table may hold that is read as a whole. Given a
// transaction it reads there.
func (s *Scheduler) List(ctx context.Context, db bun.IDB, filter Filter) ([]Schedule, error) {
	st, db, err := s.stores.Of(db, errUnmade)
	if err = errors.Join(err, limits.CheckKey("name", filter.Name), limits.CheckKey("tag", filter.Tag)); err != nil {
		return nil, fmt.Errorf("schedule: list: %w", err)
	}
	rows, err := st.Schedules(ctx, db, store.ScheduleFilter{Name: filter.Name, Tag: filter.Tag})
	if err != nil {
		return nil, fmt.Errorf("schedule: list: %w", dberr.Explained(err))
	}
	return store.Each(rows, func(row store.Schedule) Schedule {
		return Schedule{ID: row.ID, Name: row.Name, Tag: row.Tag, PayloadType: row.PayloadType, Payload: row.Payload, Headers: store.Headers(row.Headers),
			Expression: row.CronExpression, Zone: row.CronTimezone, NextFire: row.AvailableAfter.Time, Paused: row.Paused,
			LastFire: row.LastFiredAt.Time, LastError: row.LastError, CreatedAt: row.CreatedAt.Time}
	}), nil
}

// DeleteByTag deletes the schedules with the tag and returns how many there were;
// none is no error. An empty tag is bus.ErrBadOption. Messages they have produced
// stay.
func (s *Scheduler) DeleteByTag(ctx context.Context, db bun.IDB, tag string) (n int, err error) {
	if tag == "" {
		return 0, fmt.Errorf("schedule: delete by tag: %w: the tag is empty", bus.ErrBadOption)
	}
	if err = limits.CheckKey("tag", tag); err == nil {
		err = s.writing(ctx, db, func(st *store.Store, tx bun.Tx) (err error) {
			n, err = st.DeleteSchedules(ctx, tx, store.ScheduleFilter{Tag: tag})
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("schedule: delete by tag %q: %w", tag, err)
	}
	return n, nil
}

// DeleteByID deletes one schedule. It returns [ErrNotFound] when there is none.
// Messages it has produced stay.
func (s *Scheduler) DeleteByID(ctx context.Context, db bun.IDB, id int64) error {
	err := s.writing(ctx, db, func(st *store.Store, tx bun.Tx) error {
		if id == 0 { // a zero filter would select all
			return ErrNotFound
		}
		n, err := st.DeleteSchedules(ctx, tx, store.ScheduleFilter{ID: id})
		if err == nil && n == 0 {
			return ErrNotFound
		}
		return err
	})
	return dberr.Wrap(err, "schedule: delete %d", id)
}

// Pause keeps a schedule from firing until [Scheduler.Resume], also at a next
// fire time that has come already. Pausing twice is no error; a missing schedule
// is [ErrNotFound]. It takes effect when the transaction commits; a fire that is
// on its way then is not called back.
func (s *Scheduler) Pause(ctx context.Context, db bun.IDB, id int64) error {
	return s.change(ctx, db, "pause", id, func(store.Schedule, time.Time) (store.ScheduleChange, error) {
		return store.ScheduleChange{Paused: new(true)}, nil
	})
}

// Resume lets a paused schedule fire again, from the first fire time after now:
// what it missed while it was paused is skipped, and an @every schedule counts
// from now. It changes nothing about a schedule that is not paused. It returns
// [ErrNotFound], or [ErrExpression] when this version of the program cannot read
// the expression or zone.
func (s *Scheduler) Resume(ctx context.Context, db bun.IDB, id int64) error {
	return s.change(ctx, db, "resume", id, func(row store.Schedule, now time.Time) (store.ScheduleChange, error) {
		if !row.Paused {
			return store.ScheduleChange{Paused: new(false)}, nil
		}
		next, err := nextFire(row.CronExpression, row.CronTimezone, now)
		return store.ScheduleChange{Paused: new(false), AvailableAfter: next}, err
	})
}

// RunNow fires a schedule once, with the next poll of a processor, beside the fire
// times it has: those stay as they are, and a paused schedule fires this once,
// too. Asking again before it has fired changes nothing. It returns [ErrNotFound]
// when there is none.
func (s *Scheduler) RunNow(ctx context.Context, db bun.IDB, id int64) error {
	return s.change(ctx, db, "run now", id, func(store.Schedule, time.Time) (store.ScheduleChange, error) {
		return store.ScheduleChange{RunNow: true}, nil
	})
}

// UpdateSchedule gives a schedule another expression and zone. It fires next at
// the first fire time of these after now; a [Scheduler.RunNow] that has not fired
// yet is taken back. It clears LastError, and a paused schedule stays paused. A
// program that writes the schedule by [Name] at boot overwrites this then.
//
// It returns [ErrExpression] before it sends anything, and [ErrNotFound].
func (s *Scheduler) UpdateSchedule(ctx context.Context, db bun.IDB, id int64, expression, zone string) error {
	if err := checkExpression(expression, zone); err != nil {
		return fmt.Errorf("schedule: update schedule %d: %w", id, err)
	}
	return s.change(ctx, db, "update schedule", id, func(_ store.Schedule, now time.Time) (store.ScheduleChange, error) {
		next, err := nextFire(expression, zone, now)
		return store.ScheduleChange{CronExpression: expression, CronTimezone: zone, AvailableAfter: next, Ran: true, Error: new("")}, err
	})
}

// UpdatePayload gives a schedule another payload, which may be of another type,
// from its next fire on. It clears LastError; the next fire time stays. A program
// that writes the schedule by [Name] at boot overwrites this then.
//
// It returns [ErrNotFound], and what [Scheduler.Schedule] returns for a payload.
func (s *Scheduler) UpdatePayload(ctx context.Context, db bun.IDB, id int64, payload bus.Payload) error {
	payloadType, text, err := s.encode(payload, nil)
	if err != nil {
		return fmt.Errorf("schedule: update payload of %d: %w", id, err)
	}
	return s.change(ctx, db, "update payload of", id, func(store.Schedule, time.Time) (store.ScheduleChange, error) {
		return store.ScheduleChange{Payload: text, PayloadType: payloadType, Error: new("")}, nil
	})
}

// change changes one schedule, which must exist. It holds the row before it looks
// at the clock, so that a fire is either over or still to come.
func (s *Scheduler) change(ctx context.Context, db bun.IDB, what string, id int64, change func(row store.Schedule, now time.Time) (store.ScheduleChange, error)) error {
	err := s.writing(ctx, db, func(st *store.Store, tx bun.Tx) error {
		if id == 0 { // a zero filter would select all
			return ErrNotFound
		}
		rows, now, err := st.LockSchedules(ctx, tx, store.ScheduleFilter{ID: id})
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return ErrNotFound
		}
		changed, err := change(rows[0], now)
		if err != nil {
			return err
		}
		_, err = st.UpdateSchedule(ctx, tx, id, changed)
		return err
	})
	return dberr.Wrap(err, "schedule: %s %d", what, id)
}
