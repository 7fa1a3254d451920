package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Spec is one schedule of a set, for [Scheduler.Sync]. All fields but Headers and SkipOverlap are
// required.
type Spec struct {
	Name       string // see [Name]
	Payload    bus.Payload
	Expression string
	Zone       string
	Headers    map[string]string // headers of every message; nil: none
	// SkipOverlap skips consumers that still have a pending message of the schedule: see
	// [SkipOverlap].
	SkipOverlap bool
}

// Sync makes the schedules with the tag equal to the set. It writes each one, as [Scheduler.Upsert]
// does with [Name] and [Tag], and deletes all others with the tag. Call it at every boot: a
// schedule that a release no longer declares then stops firing. Each program needs its own tag for
// its set, and an empty set deletes all schedules with the tag.
//
// During a rolling deploy of two releases, the last call wins.
//
// Sync is all or nothing; given a *bun.DB or bun.Conn it uses its own transaction. It joins the
// errors of all invalid schedules of the set, which are those of [Scheduler.Upsert]. Two schedules
// with one name, an empty tag, and a name that already has another tag are bus.ErrInvalidOption.
func (s *Scheduler) Sync(ctx context.Context, db bus.Handle, tag string, set ...Spec) error {
	rows, err := s.declared(ctx, tag, set)
	if err != nil {
		return fmt.Errorf("schedule: sync %q: %w", tag, err)
	}
	err = s.writing(ctx, db, func(st *store.Store, tx bun.Tx) error {
		if err := st.Schedules.LockSet(ctx, tx, tag); err != nil {
			return err
		}
		kept := make([]int64, len(rows))
		for i, row := range rows {
			if err := otherSet(ctx, st, tx, row); err != nil {
				return err
			}
			if kept[i], err = s.save(ctx, st, tx, row); err != nil {
				return fmt.Errorf("schedule %q: %w", row.Name, err)
			}
		}
		_, err := st.Schedules.Delete(ctx, tx, store.ScheduleFilter{Tag: tag, Except: kept})
		return err
	})
	return dberr.Wrap(err, "schedule: sync %q", tag)
}

// otherSet refuses a name of another set: each of the two would take the schedule over at every
// boot.
func otherSet(ctx context.Context, st *store.Store, tx bun.Tx, row store.Schedule) error {
	old, _, err := st.Schedules.Lock(ctx, tx, store.ScheduleFilter{Name: row.Name})
	if err == nil && len(old) > 0 && old[0].Tag != "" && old[0].Tag != row.Tag {
		err = fmt.Errorf("schedule %q: %w: it belongs to the set %q", row.Name, bus.ErrInvalidOption, old[0].Tag)
	}
	return err
}

// declared returns the rows of a set, sorted by name, without their next fire times.
func (s *Scheduler) declared(ctx context.Context, tag string, set []Spec) ([]store.Schedule, error) {
	mistakes := limits.CheckKey("tag", tag)
	if tag == "" {
		mistakes = fmt.Errorf("%w: the tag is empty", bus.ErrInvalidOption)
	}
	seen := make(map[string]bool, len(set))
	rows := make([]store.Schedule, len(set))
	for i, d := range set {
		options := []Option{Name(d.Name), func(s *Schedule) error { s.Tag, s.SkipOverlap = tag, d.SkipOverlap; return nil }}
		for key, value := range d.Headers {
			options = append(options, Header(key, value))
		}
		row, err := s.row(ctx, d.Payload, d.Expression, d.Zone, options)
		if seen[d.Name] {
			err = errors.Join(err, fmt.Errorf("%w: the name is declared twice", bus.ErrInvalidOption))
		}
		if err != nil {
			mistakes = errors.Join(mistakes, fmt.Errorf("schedule %d %q: %w", i, d.Name, err))
		}
		rows[i], seen[d.Name] = row, true
	}
	slices.SortFunc(rows, func(a, b store.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	return rows, mistakes
}
