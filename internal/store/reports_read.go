package store

import (
	"context"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const processColumns = `SELECT id, kind, host, pid, program, version, started_at, seen_at, stopped_at, manifest, state, {now} AS now FROM {processes}`

// Processes returns processes that were seen within a time, the last seen first.
func (s *ReportStore) Processes(ctx context.Context, db bun.IDB, within time.Duration, limit int) ([]Process, error) {
	return read[[]Process](ctx, s.tables, db,
		processColumns+` WHERE seen_at > ? ORDER BY seen_at DESC, id LIMIT ?`, bun.Safe(s.names.After(ctx, -within)), limit)
}

// Contracts returns what processes that were seen within a time have reported of their payloads, the
// last seen first.
func (s *ReportStore) Contracts(ctx context.Context, db bun.IDB, within time.Duration, limit int) ([]string, error) {
	return read[[]string](ctx, s.tables, db,
		`SELECT contract FROM {processes} WHERE contract IS NOT NULL AND seen_at > ? ORDER BY seen_at DESC, id LIMIT ?`,
		bun.Safe(s.names.After(ctx, -within)), limit)
}

// Minutes returns the tallies of the given time until now, of all consumers or of some, by consumer
// and minute. Minutes without runs are left out.
func (s *ReportStore) Minutes(ctx context.Context, db bun.IDB, within time.Duration, consumers []string) (minutes []Minute, err error) {
	where, args := "minute > ?", []any{bun.Safe(s.names.After(ctx, -within))}
	if len(consumers) > 0 {
		where, args = "consumer_type IN (?) AND "+where, append([]any{bun.List(consumers)}, args...)
	}
	query := s.names.Query(ctx, db, `SELECT consumer_type, minute, `+strings.Join(tallyColumns(), ", ")+` FROM {minutes} WHERE `+where+` ORDER BY consumer_type, minute`, args...).
		String()
	return retried(ctx, db, func(db bun.IDB) ([]Minute, error) {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var minutes []Minute
		for rows.Next() {
			var m Minute
			into := []any{&m.ConsumerType, &m.At}
			for _, field := range m.fields() {
				into = append(into, field)
			}
			if err := rows.Scan(into...); err != nil {
				return nil, err
			}
			minutes = append(minutes, m)
		}
		return minutes, rows.Err()
	})
}

const failureColumns = `SELECT consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id FROM {failures} WHERE `

// Failures returns groups of failures, the most recent first.
func (s *ReportStore) Failures(ctx context.Context, db bun.IDB, consumer string, limit int) ([]FailureGroup, error) {
	var t terms
	t.add(consumer != "", "consumer_type = ?", consumer)
	return read[[]FailureGroup](ctx, s.tables, db, failureColumns+t.where()+` ORDER BY last_at DESC, consumer_type, fingerprint LIMIT ?`,
		append(t.args, limit)...)
}

// Crash is a process that was lost while it held a message.
type Crash struct {
	RowID        int64          `bun:"row_id"`
	ConsumerType string         `bun:"consumer_type"`
	Owner        string         `bun:"owner"`
	Solo         bool           `bun:"solo"` // it was the only suspect in that process
	CrashedAt    dialect.Moment `bun:"crashed_at"`
}

// Crashes returns processes that were lost with a given message, or with any, the last first.
func (s *ReportStore) Crashes(ctx context.Context, db bun.IDB, rowID int64, limit int) ([]Crash, error) {
	var t terms
	t.add(rowID != 0, "row_id = ?", rowID)
	return read[[]Crash](
		ctx,
		s.tables,
		db,
		`SELECT row_id, consumer_type, owner, solo, crashed_at FROM {crashes} WHERE `+t.where()+` ORDER BY crashed_at DESC, id DESC LIMIT ?`,
		append(t.args, limit)...)
}
