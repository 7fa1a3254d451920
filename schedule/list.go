package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/paging"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Schedule is a schedule as [Scheduler.List] returns it. Times are in UTC, on the database's clock.
type Schedule struct {
	ID          int64             `json:"id"`
	Name        string            `json:"name,omitempty"` // empty: unnamed
	Tag         string            `json:"tag,omitempty"`  // empty: untagged
	PayloadType string            `json:"payload_type"`
	Payload     []byte            `json:"payload,omitempty"`      // as the registry's codec encoded it; nil in a brief list
	Headers     map[string]string `json:"headers,omitempty"`      // nil: none, or a brief list
	SkipOverlap bool              `json:"skip_overlap,omitempty"` // see [SkipOverlap]; false in a brief list
	Expression  string            `json:"expression"`             // as it was written
	Zone        string            `json:"zone"`
	// NextFire is the next fire time, or when a fire that failed is retried. While the schedule is
	// paused it does not apply, and [Scheduler.Resume] resets it. If it stays in the past although
	// processors run, none of them has the payload type registered, and they log a warning.
	NextFire time.Time `json:"next_fire,omitzero"`
	// RunAt is when a [Scheduler.Trigger] that has not fired yet was requested, or when it is
	// retried. Zero means none.
	RunAt  time.Time `json:"run_at,omitzero"`
	Paused bool      `json:"paused"`
	// LastFire is when it last fired; zero means never.
	LastFire time.Time `json:"last_fire,omitzero"`
	// LastError is why it could not fire: an expression, zone or payload that this version of the
	// program cannot read, or an error of the produce chain. A processor that has failed retries after a
	// minute; any other processor tries at once. The next fire, or an update, clears the text. At most 8 KiB.
	LastError string `json:"last_error,omitempty"`
	// CreatedAt is when the schedule was first written.
	CreatedAt time.Time `json:"created_at,omitzero"`
	// Recent lists its last ten fires, the oldest first, including those that failed.
	Recent []Fire `json:"recent,omitempty"`
}

// MarshalJSON implements json.Marshaler. A payload that is JSON is embedded unchanged, any other as
// a string. It is for output only: unmarshalling the result does not restore Payload.
func (s Schedule) MarshalJSON() ([]byte, error) {
	type plain Schedule // without this method
	return json.Marshal(struct {
		plain
		Payload store.PayloadText `json:"payload,omitempty"`
	}{plain(s), s.Payload})
}

// Fire is one attempt to fire a schedule. Times are in UTC, on the database's clock.
type Fire struct {
	// Due is the fire time: see [ScheduledTimeFromContext].
	Due      time.Time `json:"due"`
	FiredAt  time.Time `json:"fired_at"`
	Messages int       `json:"messages"` // messages made, one for each consumer, including those skipped by [SkipOverlap]
	// Error is why it could not fire, cut at 512 bytes; it was retried. Empty if it has fired.
	Error string `json:"error,omitempty"`
}

// Filter selects schedules. All fields that are set must match exactly. The zero value matches all.
type Filter struct {
	// Name is the schedule's [Name]: up to 255 bytes.
	Name string
	// Tag is the schedule's [Tag]: up to 255 bytes.
	Tag string
}

// List returns a page of the schedules that match, in the order in which they were first written,
// and the next page, which is nil after the last one. Given a transaction, it reads there. A page
// that List did not return, or a Size above 1000, is bus.ErrInvalidOption. A Name or Tag of more
// than 255 bytes is bus.ErrTooLarge, and one that is not valid text is bus.ErrInvalidText.
func (s *Scheduler) List(ctx context.Context, db bun.IDB, filter Filter, page admin.Page) ([]Schedule, *admin.Page, error) {
	size, place, mistake := paging.Start(page.Size, page.After)
	st, db, err := s.stores.Of(db, errUnmade)
	if err = errors.Join(err, mistake, limits.CheckKey("name", filter.Name), limits.CheckKey("tag", filter.Tag)); err != nil {
		return nil, nil, dberr.Wrap(err, "schedule: list")
	}
	rows, err := st.Schedules.List(ctx, db, store.ScheduleFilter{Name: filter.Name, Tag: filter.Tag, After: place.ID}, page.Brief, size+1)
	if err != nil {
		return nil, nil, dberr.Wrap(err, "schedule: list")
	}
	var next *admin.Page
	if len(rows) > size {
		rows = rows[:size]
		next = &admin.Page{Size: size, After: paging.After(paging.Place{ID: rows[size-1].ID}), Brief: page.Brief}
	}
	return store.Each(rows, newSchedule), next, nil
}

// Get returns one schedule with its payload, or [ErrNotFound]. Given a transaction, it reads there.
func (s *Scheduler) Get(ctx context.Context, db bun.IDB, id int64) (Schedule, error) {
	st, db, err := s.stores.Of(db, errUnmade)
	if err == nil && id == 0 { // a zero filter would select all
		err = ErrNotFound
	}
	var rows []store.Schedule
	if err == nil {
		rows, err = st.Schedules.List(ctx, db, store.ScheduleFilter{ID: id}, false, 1)
	}
	if err == nil && len(rows) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Schedule{}, dberr.Wrap(err, "schedule: get %d", id)
	}
	return newSchedule(rows[0]), nil
}

// retried returns a fire time, or the time of its retry if that is later.
func retried(at, retry store.Moment) time.Time {
	if !at.IsZero() && retry.After(at.Time) {
		return retry.Time
	}
	return at.Time
}

func newSchedule(row store.Schedule) Schedule {
	headers, _, skipOverlap := headersOf(row)
	return Schedule{
		ID:          row.ID,
		Name:        row.Name,
		Tag:         row.Tag,
		PayloadType: row.PayloadType,
		Payload:     row.Payload,
		Headers:     headers,
		SkipOverlap: skipOverlap,
		Expression:  row.CronExpression,
		Zone:        row.CronTimezone,
		NextFire:    retried(row.AvailableAfter, row.RetryAt),
		RunAt:       retried(row.RunAt, row.RetryAt),
		Paused:      row.Paused,
		LastFire:    row.LastFiredAt.Time,
		LastError:   row.LastError,
		CreatedAt:   row.CreatedAt.Time,
		Recent: store.Each(store.FiresOf(row.Recent), func(f store.Fire) Fire {
			return Fire{Due: time.UnixMicro(f.Due).UTC(), FiredAt: time.UnixMicro(f.Fired).UTC(), Messages: f.Messages, Error: f.Error}
		}),
	}
}
