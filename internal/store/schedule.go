package store

import (
	"context"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Schedule is a row of scheduled_messages.
type Schedule struct {
	bun.BaseModel `bun:"table:scheduled_messages,alias:s"`

	ID             int64          `bun:"id,pk,autoincrement"`
	Name           string         `bun:"name,nullzero"`
	Tag            string         `bun:"tag,nullzero"`
	PayloadType    string         `bun:"payload_type"`
	Payload        []byte         `bun:"payload"`
	Headers        []byte         `bun:"headers"`
	CronExpression string         `bun:"cron_expression"`
	CronTimezone   string         `bun:"cron_timezone"`
	AvailableAfter dialect.Moment `bun:"available_after"`
	RunAt          dialect.Moment `bun:"run_at"`
	Paused         bool           `bun:"paused"`
	LastFiredAt    dialect.Moment `bun:"last_fired_at"`
	LastError      string         `bun:"last_error"`
	CreatedAt      dialect.Moment `bun:"created_at"`
	Now            dialect.Moment `bun:"now,scanonly"` // when the row was read
}

// Due tells whether the schedule's own fire time has come.
func (s Schedule) Due() bool { return !s.Paused && !s.AvailableAfter.After(s.Now.Time) }

// RunNow tells whether somebody has asked for a run beside those.
func (s Schedule) RunNow() bool { return !s.RunAt.IsZero() && !s.RunAt.After(s.Now.Time) }

// ScheduleFilter selects schedules; zero fields select all.
type ScheduleFilter struct {
	ID        int64
	IDs       []int64 // only these
	Except    []int64 // all but these
	Name, Tag string
	Failed    bool // only those that could not fire the last time
	Sound     bool // only the others
}

func (s *Store) filtered(q bun.QueryBuilder, f ScheduleFilter) bun.QueryBuilder {
	if f.ID != 0 {
		q = q.Where("id = ?", f.ID)
	}
	if len(f.IDs) > 0 {
		q = q.Where("id IN (?)", bun.List(f.IDs))
	}
	if len(f.Except) > 0 {
		q = q.Where("id NOT IN (?)", bun.List(f.Except))
	}
	if f.Name != "" {
		q = q.Where("name = ?", f.Name)
	}
	if f.Tag != "" {
		q = q.Where("tag = ?", f.Tag)
	}
	if f.Failed {
		q = q.Where("last_error IS NOT NULL")
	}
	if f.Sound {
		q = q.Where("last_error IS NULL")
	}
	return q
}

// Now returns the database's time.
func (s *Store) Now(ctx context.Context, db bun.IDB) (time.Time, error) {
	var now dialect.Moment
	err := db.NewRaw("SELECT "+s.dialect.Now(ctx)+" AS now").Scan(ctx, &now)
	return now.Time, err
}

// SaveSchedule inserts a schedule and returns its id. A named schedule that
// exists is replaced; it keeps its place in time as long as its expression and
// zone stay, so that saving it at every boot postpones nothing.
func (s *Store) SaveSchedule(ctx context.Context, db bun.IDB, row Schedule) (id int64, err error) {
	model := dialect.NewSchedule{
		Name: row.Name, Tag: row.Tag, PayloadType: row.PayloadType, Payload: string(row.Payload), Headers: string(row.Headers),
		CronExpression: row.CronExpression, CronTimezone: row.CronTimezone,
		AvailableAfter: bun.Safe(s.dialect.At(row.AvailableAfter.Time)), CreatedAt: bun.Safe(s.dialect.Now(ctx)),
	}
	return s.dialect.SaveSchedule(ctx, db, &model)
}

// Schedules lists schedules by id.
func (s *Store) Schedules(ctx context.Context, db bun.IDB, f ScheduleFilter) (rows []Schedule, err error) {
	err = retry(ctx, db, func(db bun.IDB) error {
		q := db.NewSelect().Model(&rows).ModelTableExpr(s.names.Schedules + " AS s")
		return s.filtered(q.QueryBuilder(), f).Unwrap().(*bun.SelectQuery).Order("id").Scan(ctx)
	})
	return rows, err
}

// DeleteSchedules deletes schedules and returns how many.
func (s *Store) DeleteSchedules(ctx context.Context, db bun.IDB, f ScheduleFilter) (int, error) {
	q := db.NewDelete().Model((*Schedule)(nil)).ModelTableExpr(s.names.Schedules)
	return dialect.Affected(s.filtered(q.QueryBuilder(), f).Unwrap().(*bun.DeleteQuery).Exec(ctx))
}

// ScheduleChange changes some columns of a schedule.
type ScheduleChange struct {
	Paused         *bool
	AvailableAfter time.Time // zero leaves it
	RunAt          time.Time // zero leaves it, unless Ran
	RunNow         bool      // asks for a run, on the database's clock
	Ran            bool      // nobody asks for a run any more
	CronExpression string    // empty leaves expression and zone
	CronTimezone   string
	Payload        []byte // nil leaves payload and type
	PayloadType    string
	FiredAt        time.Time // zero leaves it
	Error          *string
}

// UpdateSchedule changes a schedule and tells whether there is one.
func (s *Store) UpdateSchedule(ctx context.Context, db bun.IDB, id int64, c ScheduleChange) (bool, error) {
	q := db.NewUpdate().Model((*Schedule)(nil)).ModelTableExpr(s.names.Schedules+" AS s").Where("id = ?", id)
	if c.Paused != nil {
		q = q.Set("paused = ?", *c.Paused)
	}
	if !c.AvailableAfter.IsZero() {
		q = q.Set("available_after = " + s.dialect.At(c.AvailableAfter))
	}
	switch {
	case c.RunNow:
		q = q.Set("run_at = " + s.dialect.Now(ctx))
	case c.Ran:
		q = q.Set("run_at = NULL")
	case !c.RunAt.IsZero():
		q = q.Set("run_at = " + s.dialect.At(c.RunAt))
	}
	if c.CronExpression != "" {
		q = q.Set("cron_expression = ?, cron_timezone = ?", c.CronExpression, c.CronTimezone)
	}
	if c.Payload != nil {
		q = q.Set("payload = ?, payload_type = ?", string(c.Payload), c.PayloadType)
	}
	if !c.FiredAt.IsZero() {
		q = q.Set("last_fired_at = " + s.dialect.At(c.FiredAt))
	}
	if c.Error != nil {
		q = q.Set("last_error = NULLIF(?, '')", errorlog.Clean(*c.Error, errorlog.MaxBytes))
	}
	changed, err := dialect.AffectedOne(q.Exec(ctx))
	if changed || err != nil {
		return changed, err
	}
	// MariaDB does not count a row that had these values already.
	err = db.NewRaw(s.names.Expand(`SELECT count(*) FROM {schedules} WHERE id = ?`), id).Scan(ctx, &changed)
	return changed, err
}

// LockSchedules locks the schedules that match for the rest of the transaction,
// and reads the clock once it has them: whatever was firing them has committed by
// then.
func (s *Store) LockSchedules(ctx context.Context, tx bun.Tx, f ScheduleFilter) (rows []Schedule, now time.Time, err error) {
	if err := s.WriteFirst(ctx, tx); err != nil {
		return nil, time.Time{}, err
	}
	q := tx.NewSelect().Model(&rows).ModelTableExpr(s.names.Schedules + " AS s")
	q = s.filtered(q.QueryBuilder(), f).Unwrap().(*bun.SelectQuery).Order("id")
	if s.RowLocks() {
		q = q.For("UPDATE")
	}
	if err := q.Scan(ctx); err != nil {
		return nil, time.Time{}, err
	}
	now, err = s.Now(ctx, tx)
	return rows, now, err
}

// LockScheduleSet keeps others from locking the schedules of a tag, as a set, until the
// end of the transaction. Where only rows can be locked that is not all there is to
// it: a conflict is repeated.
func (s *Store) LockScheduleSet(ctx context.Context, tx bun.Tx, tag string) error {
	err := s.dialect.AdvisoryLock(ctx, tx, "schedules tagged "+tag, true)
	if errors.Is(err, errors.ErrUnsupported) {
		_, _, err = s.LockSchedules(ctx, tx, ScheduleFilter{Tag: tag})
	}
	return err
}

// LockDueSchedules locks schedules of the given payload types that are due, or
// that somebody wants to run now, and that nobody else has locked, for the rest
// of the transaction, of which the server bounds each statement and each wait for
// the next one by the limit.
func (s *Store) LockDueSchedules(ctx context.Context, tx bun.Tx, payloadTypes []string, f ScheduleFilter, n int, limit time.Duration) (rows []Schedule, err error) {
	if err := s.dialect.Within(ctx, tx, limit); err != nil {
		return nil, err
	}
	if err := s.WriteFirst(ctx, tx); err != nil {
		return nil, err
	}
	q := tx.NewSelect().Model(&rows).ColumnExpr("?TableColumns").ColumnExpr(s.dialect.Now(ctx) + " AS now")
	q = s.due(ctx, q, payloadTypes, f, n)
	if s.RowLocks() {
		q = q.For("UPDATE SKIP LOCKED")
	}
	err = q.Scan(ctx)
	return rows, err
}

// DueScheduleIDs returns the ids of schedules that are due, locked or not. It reads
// nothing else of them, so that it finds those, too, that cannot be read.
func (s *Store) DueScheduleIDs(ctx context.Context, db *bun.DB, payloadTypes []string, f ScheduleFilter, limit int) (ids []int64, err error) {
	err = retry(ctx, db, func(db bun.IDB) error {
		ids = nil
		return s.due(ctx, db.NewSelect().Model((*Schedule)(nil)).Column("id"), payloadTypes, f, limit).Scan(ctx, &ids)
	})
	return ids, err
}

func (s *Store) due(ctx context.Context, q *bun.SelectQuery, payloadTypes []string, f ScheduleFilter, limit int) *bun.SelectQuery {
	now := s.dialect.Now(ctx)
	q = q.ModelTableExpr(s.names.Schedules + " AS s")
	return s.filtered(q.QueryBuilder(), f).Unwrap().(*bun.SelectQuery).
		Where("((NOT paused AND available_after <= "+now+") OR run_at <= "+now+")").Where("payload_type IN (?)", bun.List(payloadTypes)).
		OrderExpr("available_after, id").Limit(int64(limit))
}

// UnregisteredSchedules lists the schedules, 20 at most, that should have fired so
// long ago and have not, and whose payload type is none of the given.
func (s *Store) UnregisteredSchedules(ctx context.Context, db *bun.DB, payloadTypes []string, overdue time.Duration) (rows []Schedule, err error) {
	err = retry(ctx, db, func(db bun.IDB) error {
		rows = nil
		q := db.NewSelect().Model(&rows).ModelTableExpr(s.names.Schedules + " AS s").
			Where("NOT paused").Where("available_after < " + s.dialect.After(ctx, -overdue))
		if len(payloadTypes) > 0 {
			q = q.Where("payload_type NOT IN (?)", bun.List(payloadTypes))
		}
		return q.OrderExpr("available_after, id").Limit(20).Scan(ctx)
	})
	return rows, err
}

// NextSchedule returns the time until the next schedule of the payload types is
// due, those with the given ids left out; false means that there is none.
func (s *Store) NextSchedule(ctx context.Context, db *bun.DB, payloadTypes []string, except []int64) (time.Duration, bool, error) {
	var found []struct {
		Now  dialect.Moment `bun:"now"`
		Due  dialect.Moment `bun:"due"`
		Asks dialect.Moment `bun:"asks"`
	}
	which, args := "payload_type IN (?)", []any{bun.List(payloadTypes)}
	if len(except) > 0 {
		which, args = which+" AND id NOT IN (?)", append(args, bun.List(except))
	}
	err := retry(ctx, db, func(db bun.IDB) error {
		return s.dialect.Query(ctx, db, "SELECT {now} AS now,"+
			" (SELECT MIN(available_after) FROM {schedules} WHERE NOT paused AND "+which+") AS due,"+
			" (SELECT MIN(run_at) FROM {schedules} WHERE run_at IS NOT NULL AND "+which+") AS asks", append(args, args...)...).Scan(ctx, &found)
	})
	if err != nil || len(found) == 0 || found[0].Due.IsZero() && found[0].Asks.IsZero() {
		return 0, false, err
	}
	next := found[0].Due
	if asks := found[0].Asks; next.IsZero() || !asks.IsZero() && asks.Before(next.Time) {
		next = asks
	}
	return next.Sub(found[0].Now.Time), true, nil
}
