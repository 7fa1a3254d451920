package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/paging"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Schedule is a row of the table as [Scheduler.List] shows it. Its instants are
// in UTC, on the database's clock.
type Schedule struct {
	ID          int64             `json:"id"`
	Name        string            `json:"name,omitempty"` // empty: unnamed
	Tag         string            `json:"tag,omitempty"`  // empty: untagged
	PayloadType string            `json:"payload_type"`
	Payload     []byte            `json:"-"`                      // as the registry's codec encoded it; nil in a brief list
	Headers     map[string]string `json:"headers,omitempty"`      // nil: none, or a brief list
	SkipOverlap bool              `json:"skip_overlap,omitempty"` // see [SkipOverlap]; false in a brief list
	Expression  string            `json:"expression"`             // as it was written
	Zone        string            `json:"zone"`
	// NextFire is when it fires next. While it is paused, that is when it would
	// have; [Scheduler.Resume] sets it anew. One that stays in the past although
	// processors run has a payload type that none of them has registered: they
	// log a warning.
	NextFire time.Time `json:"next_fire,omitzero"`
	// RunAt is when a run that has not fired yet was requested with [Scheduler.Trigger], or when
	// that is tried again; zero means that none was.
	RunAt  time.Time `json:"run_at,omitzero"`
	Paused bool      `json:"paused"`
	// LastFire is when it last fired; zero means never.
	LastFire time.Time `json:"last_fire,omitzero"`
	// LastError says why it could not fire: an expression, zone or payload that
	// this version of the program cannot read, or an error of the produce chain.
	// It is tried again after a minute, and the text goes with the next fire or
	// with an update. At most 8 KiB.
	LastError string `json:"last_error,omitempty"`
	// CreatedAt is when it was written first.
	CreatedAt time.Time `json:"created_at,omitzero"`
	// Recent are its last ten fires, the oldest first, whether or not they could fire.
	Recent []Fire `json:"recent,omitempty"`
}

// Fire is one time that a schedule was to fire. Its instants are in UTC, on the database's clock.
type Fire struct {
	// Due is what it was fired for, see [ScheduledTimeFromContext].
	Due      time.Time `json:"due"`
	FiredAt  time.Time `json:"fired_at"`
	Messages int       `json:"messages"` // that it made, one for each consumer; those that [SkipOverlap] left out count as well
	// Error is why it could not fire, up to 512 bytes of it; it was tried again. Empty if it has fired.
	Error string `json:"error,omitempty"`
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

// Page is a part of a listing. The zero value is the first page.
type Page struct {
	// Size is the most schedules in the page: 1 to 1000. Defaults to 50.
	Size int `json:"size"`
	// After is where the page begins: what the listing returned, or empty for the
	// start. It may be written down, into a link for instance.
	After string `json:"after"`
	// Brief leaves out payloads and headers, of which each may have a MiB.
	Brief bool `json:"brief,omitempty"`
}

// List returns a page of the schedules that match, in the order in which they were first
// written, and the page after it, which is nil when there is none. Given a
// transaction it reads there. A page that List did not return is bus.ErrInvalidOption.
func (s *Scheduler) List(ctx context.Context, db bun.IDB, filter Filter, page Page) ([]Schedule, *Page, error) {
	size, place, mistake := paging.Start(page.Size, page.After)
	st, db, err := s.stores.Of(db, errUnmade)
	if err = errors.Join(err, mistake, limits.CheckKey("name", filter.Name), limits.CheckKey("tag", filter.Tag)); err != nil {
		return nil, nil, dberr.Wrap(err, "schedule: list")
	}
	rows, err := st.Schedules(ctx, db, store.ScheduleFilter{Name: filter.Name, Tag: filter.Tag, After: place.ID}, page.Brief, size+1)
	if err != nil {
		return nil, nil, dberr.Wrap(err, "schedule: list")
	}
	var next *Page
	if len(rows) > size {
		rows = rows[:size]
		next = &Page{Size: size, After: paging.After(paging.Place{ID: rows[size-1].ID}), Brief: page.Brief}
	}
	return store.Each(rows, newSchedule), next, nil
}

// Get returns one schedule with its payload, or [ErrNotFound]. Given a transaction it
// reads there.
func (s *Scheduler) Get(ctx context.Context, db bun.IDB, id int64) (Schedule, error) {
	st, db, err := s.stores.Of(db, errUnmade)
	if err == nil && id == 0 { // a zero filter would select all
		err = ErrNotFound
	}
	var rows []store.Schedule
	if err == nil {
		rows, err = st.Schedules(ctx, db, store.ScheduleFilter{ID: id}, false, 1)
	}
	if err == nil && len(rows) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Schedule{}, dberr.Wrap(err, "schedule: get %d", id)
	}
	return newSchedule(rows[0]), nil
}

func newSchedule(row store.Schedule) Schedule {
	headers, skipOverlap := headersOf(row)
	return Schedule{ID: row.ID, Name: row.Name, Tag: row.Tag, PayloadType: row.PayloadType, Payload: row.Payload, Headers: headers, SkipOverlap: skipOverlap,
		Expression: row.CronExpression, Zone: row.CronTimezone, NextFire: row.AvailableAfter.Time, RunAt: row.RunAt.Time, Paused: row.Paused,
		LastFire: row.LastFiredAt.Time, LastError: row.LastError, CreatedAt: row.CreatedAt.Time,
		Recent: store.Each(store.FiresOf(row.Recent), func(f store.Fire) Fire {
			return Fire{Due: time.UnixMicro(f.Due).UTC(), FiredAt: time.UnixMicro(f.Fired).UTC(), Messages: f.Messages, Error: f.Error}
		})}
}
