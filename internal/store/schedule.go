package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
)

// Schedule is a row of scheduled_messages.
type Schedule struct {
	bun.BaseModel `bun:"table:scheduled_messages,alias:s"`

	ID             int64  `bun:"id,pk,autoincrement"`
	Name           string `bun:"name,nullzero"`
	Tag            string `bun:"tag,nullzero"`
	PayloadType    string `bun:"payload_type"`
	Payload        []byte `bun:"payload"`
	Headers        []byte `bun:"headers"`
	CronExpression string `bun:"cron_expression"`
	CronTimezone   string `bun:"cron_timezone"`
	AvailableAfter Moment `bun:"available_after"`
	Paused         bool   `bun:"paused"`
	LastFiredAt    Moment `bun:"last_fired_at"`
	LastError      string `bun:"last_error"`
	CreatedAt      Moment `bun:"created_at"`
}

// newSchedule is what an insert writes.
type newSchedule struct {
	bun.BaseModel `bun:"table:scheduled_messages,alias:s"`

	Name           string   `bun:"name,nullzero"`
	Tag            string   `bun:"tag,nullzero"`
	PayloadType    string   `bun:"payload_type"`
	Payload        string   `bun:"payload"`
	Headers        string   `bun:"headers,nullzero"`
	CronExpression string   `bun:"cron_expression"`
	CronTimezone   string   `bun:"cron_timezone"`
	AvailableAfter bun.Safe `bun:"available_after"`
	CreatedAt      bun.Safe `bun:"created_at"`
}

// ScheduleFilter selects schedules; zero fields select all.
type ScheduleFilter struct {
	ID        int64
	Name, Tag string
}

func (s *Store) filtered(q bun.QueryBuilder, f ScheduleFilter) bun.QueryBuilder {
	if f.ID != 0 {
		q = q.Where("id = ?", f.ID)
	}
	if f.Name != "" {
		q = q.Where("name = ?", f.Name)
	}
	if f.Tag != "" {
		q = q.Where("tag = ?", f.Tag)
	}
	return q
}

// Now returns the database's time.
func (s *Store) Now(ctx context.Context, db bun.IDB) (time.Time, error) {
	var now Moment
	err := db.NewRaw("SELECT "+s.now(ctx)+" AS now").Scan(ctx, &now)
	return now.Time, err
}

// SaveSchedule inserts a schedule and returns its id. A named schedule that
// exists is replaced; it keeps its place in time as long as its expression and
// zone stay, so that saving it at every boot postpones nothing.
func (s *Store) SaveSchedule(ctx context.Context, db bun.IDB, row Schedule) (id int64, err error) {
	model := newSchedule{
		Name: row.Name, Tag: row.Tag, PayloadType: row.PayloadType, Payload: string(row.Payload), Headers: string(row.Headers),
		CronExpression: row.CronExpression, CronTimezone: row.CronTimezone,
		AvailableAfter: bun.Safe(s.at(row.AvailableAfter.Time)), CreatedAt: bun.Safe(s.now(ctx)),
	}
	insert := db.NewInsert().Model(&model).ModelTableExpr(s.names.schedules + " AS s")
	if row.Name != "" {
		insert = insert.On("CONFLICT (name) DO UPDATE").
			Set("tag = EXCLUDED.tag, payload_type = EXCLUDED.payload_type, payload = EXCLUDED.payload, headers = EXCLUDED.headers").
			Set("available_after = CASE WHEN s.cron_expression = EXCLUDED.cron_expression AND s.cron_timezone = EXCLUDED.cron_timezone" +
				" THEN s.available_after ELSE EXCLUDED.available_after END").
			Set("cron_expression = EXCLUDED.cron_expression, cron_timezone = EXCLUDED.cron_timezone, last_error = NULL")
	}
	err = insert.Returning("id").Scan(ctx, &id)
	return id, err
}

// Schedules lists schedules by id.
func (s *Store) Schedules(ctx context.Context, db bun.IDB, f ScheduleFilter) (rows []Schedule, err error) {
	q := db.NewSelect().Model(&rows).ModelTableExpr(s.names.schedules + " AS s")
	err = s.filtered(q.QueryBuilder(), f).Unwrap().(*bun.SelectQuery).Order("id").Scan(ctx)
	return rows, err
}

// DeleteSchedules deletes schedules and returns how many.
func (s *Store) DeleteSchedules(ctx context.Context, db bun.IDB, f ScheduleFilter) (int, error) {
	q := db.NewDelete().Model((*Schedule)(nil)).ModelTableExpr(s.names.schedules + " AS s")
	return affected(s.filtered(q.QueryBuilder(), f).Unwrap().(*bun.DeleteQuery).Exec(ctx))
}

// ScheduleChange changes some columns of a schedule.
type ScheduleChange struct {
	Paused         *bool
	AvailableAfter time.Time // zero leaves it
	Now            bool      // available at once, on the database's clock
	CronExpression string    // empty leaves expression and zone
	CronTimezone   string
	Payload        []byte // nil leaves payload and type
	PayloadType    string
	FiredAt        time.Time // zero leaves it
	Error          *string
	Running        bool // only when it is not paused
}

// UpdateSchedule changes a schedule and tells whether it did: whether there is
// one, and as the change wants it.
func (s *Store) UpdateSchedule(ctx context.Context, db bun.IDB, id int64, c ScheduleChange) (bool, error) {
	q := db.NewUpdate().Model((*Schedule)(nil)).ModelTableExpr(s.names.schedules+" AS s").Where("id = ?", id)
	if c.Paused != nil {
		q = q.Set("paused = ?", *c.Paused)
	}
	if !c.AvailableAfter.IsZero() {
		q = q.Set("available_after = " + s.at(c.AvailableAfter))
	}
	if c.Now {
		q = q.Set("available_after = " + s.now(ctx))
	}
	if c.CronExpression != "" {
		q = q.Set("cron_expression = ?, cron_timezone = ?", c.CronExpression, c.CronTimezone)
	}
	if c.Payload != nil {
		q = q.Set("payload = ?, payload_type = ?", string(c.Payload), c.PayloadType)
	}
	if !c.FiredAt.IsZero() {
		q = q.Set("last_fired_at = " + s.at(c.FiredAt))
	}
	if c.Running {
		q = q.Where("NOT paused")
	}
	if c.Error != nil {
		q = q.Set("last_error = NULLIF(?, '')", CleanText(*c.Error, maxErrorBytes))
	}
	return affectedOne(q.Exec(ctx))
}

// LockDueSchedules locks schedules of the given payload types that are due and
// that nobody else has locked, for the rest of the transaction. A filter on the
// id selects one.
func (s *Store) LockDueSchedules(ctx context.Context, tx bun.Tx, payloadTypes []string, f ScheduleFilter, limit int) (rows []Schedule, err error) {
	if err := s.hold(ctx, tx); err != nil {
		return nil, err
	}
	q := tx.NewSelect().Model(&rows).ModelTableExpr(s.names.schedules + " AS s")
	q = s.filtered(q.QueryBuilder(), f).Unwrap().(*bun.SelectQuery).
		Where("NOT paused").Where("available_after <= "+s.now(ctx)).Where("payload_type IN (?)", bun.List(payloadTypes)).
		OrderExpr("available_after, id").Limit(int64(limit))
	if s.RowLocks() {
		q = q.For("UPDATE SKIP LOCKED")
	}
	err = q.Scan(ctx)
	return rows, err
}

// ScheduleStrangers lists the schedules, 20 at most, that should have fired so
// long ago and have not, and whose payload type is none of the given.
func (s *Store) ScheduleStrangers(ctx context.Context, db *bun.DB, payloadTypes []string, overdue time.Duration) (rows []Schedule, err error) {
	err = s.insist(ctx, db, func(db bun.IDB) error {
		rows = nil
		q := db.NewSelect().Model(&rows).ModelTableExpr(s.names.schedules + " AS s").
			Where("NOT paused").Where("available_after < " + s.after(ctx, -overdue))
		if len(payloadTypes) > 0 {
			q = q.Where("payload_type NOT IN (?)", bun.List(payloadTypes))
		}
		return q.OrderExpr("available_after, id").Limit(20).Scan(ctx)
	})
	return rows, err
}

// hold makes the first statement of a transaction a write where one writer locks
// the whole database; elsewhere it bounds what a vanished client can hold on to.
func (s *Store) hold(ctx context.Context, tx bun.Tx) error {
	statement := pgPreamble
	if tx.Dialect().Name() == dialect.SQLite {
		statement = s.names.expand(`UPDATE {schedules} SET id = id WHERE id < 0`)
	}
	if _, err := tx.NewRaw(statement).Exec(ctx); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	return nil
}

// NextSchedule returns the time until the next schedule of the payload types is
// due; false means that there is none.
func (s *Store) NextSchedule(ctx context.Context, db *bun.DB, payloadTypes []string) (time.Duration, bool, error) {
	var found []struct {
		Now  Moment `bun:"now"`
		Next Moment `bun:"next"`
	}
	err := s.insist(ctx, db, func(db bun.IDB) error {
		return db.NewSelect().TableExpr(s.names.schedules+" AS s").ColumnExpr(s.now(ctx)+" AS now").ColumnExpr("MIN(available_after) AS next").
			Where("NOT paused").Where("payload_type IN (?)", bun.List(payloadTypes)).Scan(ctx, &found)
	})
	if err != nil || len(found) == 0 || found[0].Next.IsZero() {
		return 0, false, err
	}
	return found[0].Next.Sub(found[0].Now.Time), true, nil
}
