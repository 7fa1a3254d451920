package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Schedule is a row of scheduled_messages.
type Schedule struct {
	ID             int64          `bun:"id"`
	Name           string         `bun:"name"`
	Tag            string         `bun:"tag"`
	PayloadType    string         `bun:"payload_type"`
	Payload        []byte         `bun:"payload"`
	Headers        []byte         `bun:"headers"`
	CronExpression string         `bun:"cron_expression"`
	CronTimezone   string         `bun:"cron_timezone"`
	AvailableAfter dialect.Moment `bun:"available_after"`
	RunAt          dialect.Moment `bun:"run_at"`
	RetryAt        dialect.Moment `bun:"retry_at"` // it could not fire, and is not due before
	Paused         bool           `bun:"paused"`
	LastFiredAt    dialect.Moment `bun:"last_fired_at"`
	LastError      string         `bun:"last_error"`
	CreatedAt      dialect.Moment `bun:"created_at"`
	Recent         []byte         `bun:"recent"` // its last fires, see FiresOf, only in lists
	Now            dialect.Moment `bun:"now"`    // when the row was read
}

// Due reports whether the schedule's own fire time has come.
func (s Schedule) Due() bool { return !s.Paused && !s.AvailableAfter.After(s.Now.Time) }

// RunNow reports whether an extra run was requested, be it by a clock that was set back since.
func (s Schedule) RunNow() bool { return !s.RunAt.IsZero() }

// ScheduleFilter selects schedules; zero fields select all.
type ScheduleFilter struct {
	ID        int64
	IDs       []int64 // only these
	Except    []int64 // all but these
	Name, Tag string
	Failed    bool  // only those that failed to fire the last time
	Sound     bool  // only those that did not fail
	After     int64 // only those with greater ids

	// Tried limits RetryAt to these schedules: those that the process itself could not fire. The
	// others are due for it, because it may be able to fire what another release cannot. Nil means all.
	Tried []int64
}

// retried returns the conditions under which RetryAt does not bind a schedule, and under which it does.
func (f ScheduleFilter) retried() (free, bound string, args []any) {
	switch {
	case f.Tried == nil:
		return "retry_at IS NULL", "retry_at IS NOT NULL", nil
	case len(f.Tried) == 0:
		return "TRUE", "FALSE", nil
	default:
		return "(retry_at IS NULL OR id NOT IN (?))", "(retry_at IS NOT NULL AND id IN (?))", []any{bun.List(f.Tried)}
	}
}

func (f ScheduleFilter) terms() (t terms) {
	t.add(f.ID != 0, "id = ?", f.ID)
	t.add(len(f.IDs) > 0, "id IN (?)", bun.List(f.IDs))
	t.add(len(f.Except) > 0, "id NOT IN (?)", bun.List(f.Except))
	t.add(f.Name != "", "name = ?", f.Name)
	t.add(f.Tag != "", "tag = ?", f.Tag)
	t.add(f.Failed, "last_error IS NOT NULL")
	t.add(f.Sound, "last_error IS NULL")
	t.add(f.After != 0, "id > ?", f.After)
	return t
}

const selectSchedules = `SELECT id, name, tag, payload_type, payload, headers, cron_expression, cron_timezone, available_after, run_at, retry_at, paused,
	last_fired_at, last_error, created_at, {now} AS now FROM {schedules} WHERE `

// Save inserts a schedule and returns its id. It replaces a named schedule that exists,
// which keeps its next fire time while its expression and zone stay. So saving it at every boot
// postpones nothing.
func (s *ScheduleStore) Save(ctx context.Context, db bun.IDB, row Schedule) (id int64, err error) {
	return s.dialect.SaveSchedule(ctx, db, []any{
		bun.NullZero(row.Name), bun.NullZero(row.Tag), row.PayloadType, string(row.Payload), bun.NullZero(string(row.Headers)),
		row.CronExpression, row.CronTimezone, bun.Safe(s.names.Instant(row.AvailableAfter.Time)),
	})
}

const listSchedules = `SELECT id, name, tag, payload_type, cron_expression, cron_timezone, available_after, run_at, retry_at, paused,
	last_fired_at, last_error, created_at, (SELECT f.recent FROM {fires} f WHERE f.schedule_id = s.id) AS recent%s FROM {schedules} s WHERE `

// List returns schedules by id, with their last fires. brief leaves out payloads and headers,
// which can be large.
func (s *ScheduleStore) List(ctx context.Context, db bun.IDB, f ScheduleFilter, brief bool, limit int) ([]Schedule, error) {
	t, large := f.terms(), ", payload, headers"
	if brief {
		large = ""
	}
	return read[[]Schedule](ctx, s.tables, db, fmt.Sprintf(listSchedules, large)+t.where()+" ORDER BY id LIMIT ?", append(t.args, limit)...)
}

// Delete deletes schedules and returns how many. It returns an error for a filter that
// selects all.
func (s *ScheduleStore) Delete(ctx context.Context, db bun.IDB, f ScheduleFilter) (int, error) {
	t := f.terms()
	if len(t.texts) == 0 {
		return 0, errors.New("delete schedules: the filter selects all")
	}
	return s.names.Changed(ctx, db, "DELETE FROM {schedules} WHERE "+t.where(), t.args...)
}

// ScheduleChange changes some columns of a schedule.
type ScheduleChange struct {
	Paused         *bool
	AvailableAfter time.Time // zero leaves it
	RetryAt        time.Time // zero clears it, unless Paused alone changes
	RunNow         bool      // asks for a run, on the database's clock
	Ran            bool      // the requested run is over
	CronExpression string    // empty leaves expression and zone
	CronTimezone   string
	Payload        []byte // nil leaves payload and type
	PayloadType    string
	Headers        *string   // nil leaves them
	FiredAt        time.Time // zero leaves it
	Error          *string
}

// Update changes a schedule and reports whether it exists.
func (s *ScheduleStore) Update(ctx context.Context, db bun.IDB, id int64, c ScheduleChange) (bool, error) {
	var set terms
	if c.Paused != nil {
		set.add(true, "paused = ?", *c.Paused)
	}
	set.add(!c.AvailableAfter.IsZero(), "available_after = "+s.names.Instant(c.AvailableAfter))
	switch {
	case c.RunNow:
		set.add(true, "run_at = {now}")
	case c.Ran:
		set.add(true, "run_at = NULL")
	}
	// A schedule that has changed is tried again at once.
	set.add(c.RetryAt.IsZero() && (c.Paused == nil || !c.AvailableAfter.IsZero()), "retry_at = NULL")
	set.add(!c.RetryAt.IsZero(), "retry_at = "+s.names.Instant(c.RetryAt))
	set.add(c.CronExpression != "", "cron_expression = ?, cron_timezone = ?", c.CronExpression, c.CronTimezone)
	set.add(c.Payload != nil, "payload = ?, payload_type = ?", string(c.Payload), c.PayloadType)
	if c.Headers != nil {
		set.add(true, "headers = ?", bun.NullZero(*c.Headers))
	}
	set.add(!c.FiredAt.IsZero(), "last_fired_at = "+s.names.Instant(c.FiredAt))
	if c.Error != nil {
		set.add(true, "last_error = NULLIF(?, '')", errorlog.Clean(*c.Error, errorlog.MaxBytes))
	}
	statement := "UPDATE {schedules} SET " + strings.Join(set.texts, ", ") + " WHERE id = ?"
	changed, err := s.names.ChangedOne(ctx, db, statement, append(set.args, id)...)
	if changed || err != nil {
		return changed, err
	}
	// MariaDB does not count a row that had these values already.
	err = s.names.Query(ctx, db, `SELECT count(*) FROM {schedules} WHERE id = ?`, id).Scan(ctx, &changed)
	return changed, err
}

// Lock locks matching schedules for the rest of the transaction and then reads the clock:
// any fire of them in progress has committed by then.
func (s *ScheduleStore) Lock(ctx context.Context, tx bun.Tx, f ScheduleFilter) (rows []Schedule, now time.Time, err error) {
	if err := s.WriteFirst(ctx, tx); err != nil {
		return nil, time.Time{}, err
	}
	t := f.terms()
	if err := s.names.Query(ctx, tx, selectSchedules+t.where()+" ORDER BY id {lock}", t.args...).Scan(ctx, &rows); err != nil {
		return nil, time.Time{}, err
	}
	now, err = s.Now(ctx, tx)
	return rows, now, err
}

// LockSet keeps other transactions from locking the schedules of a tag, as a set, until the
// end of the transaction. Where only rows can be locked it does not prevent every conflict: those
// are repeated.
func (s *ScheduleStore) LockSet(ctx context.Context, tx bun.Tx, tag string) error {
	err := s.dialect.AdvisoryLock(ctx, tx, "schedules tagged "+tag, true)
	if errors.Is(err, errors.ErrUnsupported) {
		_, _, err = s.Lock(ctx, tx, ScheduleFilter{Tag: tag})
	}
	return err
}

// LockDue locks schedules of the given payload types for the rest of the transaction:
// those that are due or requested, and not locked. The server bounds each statement and each wait
// for the next one by limit.
func (s *ScheduleStore) LockDue(
	ctx context.Context, tx bun.Tx, payloadTypes []string, f ScheduleFilter, n int, limit time.Duration,
) (rows []Schedule, err error) {
	if err := s.within(ctx, tx, limit); err != nil {
		return nil, fmt.Errorf("preamble: %w", err)
	}
	if err := s.WriteFirst(ctx, tx); err != nil {
		return nil, err
	}
	due, args := dueSchedules(payloadTypes, f, n)
	err = s.names.Query(ctx, tx, selectSchedules+due+" {lock free}", args...).Scan(ctx, &rows)
	return rows, err
}

// DueIDs returns the ids of due schedules, locked or not. It reads nothing else, so it also
// finds schedules that cannot be decoded.
func (s *ScheduleStore) DueIDs(ctx context.Context, db *bun.DB, payloadTypes []string, f ScheduleFilter, limit int) ([]int64, error) {
	due, args := dueSchedules(payloadTypes, f, limit)
	return read[[]int64](ctx, s.tables, db, "SELECT id FROM {schedules} WHERE "+due, args...)
}

func dueSchedules(payloadTypes []string, f ScheduleFilter, limit int) (conditions string, args []any) {
	t := f.terms()
	t.add(true, "((NOT paused AND available_after <= {now}) OR run_at IS NOT NULL)")
	free, _, args := f.retried()
	t.add(true, "("+free+" OR retry_at <= {now})", args...)
	t.add(true, "payload_type IN (?)", bun.List(payloadTypes))
	return t.where() + " ORDER BY available_after, id LIMIT ?", append(t.args, limit)
}

// Unregistered returns at most 20 schedules that are overdue for that long and have none
// of the given payload types.
func (s *ScheduleStore) Unregistered(ctx context.Context, db *bun.DB, payloadTypes []string, overdue time.Duration) ([]Schedule, error) {
	var t terms
	since := s.names.After(ctx, -overdue)
	t.add(true, "NOT paused AND available_after < "+since+" AND (retry_at IS NULL OR retry_at < "+since+")")
	t.add(len(payloadTypes) > 0, "payload_type NOT IN (?)", bun.List(payloadTypes))
	return read[[]Schedule](ctx, s.tables, db, selectSchedules+t.where()+" ORDER BY available_after, id LIMIT 20", t.args...)
}

// Next returns the time until the next schedule of the payload types is due. Of the filter it uses
// Except and Tried. It returns false if there is none.
func (s *ScheduleStore) Next(ctx context.Context, db *bun.DB, payloadTypes []string, f ScheduleFilter) (time.Duration, bool, error) {
	type next struct {
		Now   dialect.Moment `bun:"now"`
		Due   dialect.Moment `bun:"due"`
		Asks  dialect.Moment `bun:"asks"`
		Again dialect.Moment `bun:"again"`
	}
	free, bound, tried := f.retried()
	which, of := " AND payload_type IN (?)", []any{bun.List(payloadTypes)}
	if len(f.Except) > 0 {
		which, of = which+" AND id NOT IN (?)", append(of, bun.List(f.Except))
	}
	args := append(slices.Clone(tried), of...)
	found, _, err := first[next](ctx, s.tables, db, "SELECT {now} AS now,"+
		" (SELECT MIN(available_after) FROM {schedules} WHERE NOT paused AND "+free+which+") AS due,"+
		" (SELECT MIN(run_at) FROM {schedules} WHERE run_at IS NOT NULL AND "+free+which+") AS asks,"+
		" (SELECT MIN(retry_at) FROM {schedules} WHERE "+bound+" AND (NOT paused OR run_at IS NOT NULL)"+which+") AS again",
		slices.Concat(args, args, args)...)
	if found.Asks.After(found.Now.Time) { // the clock was set back
		found.Asks = found.Now
	}
	var soonest time.Time
	for _, at := range []dialect.Moment{found.Due, found.Asks, found.Again} {
		if soonest.IsZero() || !at.IsZero() && at.Before(soonest) {
			soonest = at.Time
		}
	}
	return soonest.Sub(found.Now.Time), err == nil && !soonest.IsZero(), err
}
