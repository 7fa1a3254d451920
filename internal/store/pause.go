package store

import (
	"context"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Paused is a row of paused_consumers.
type Paused struct {
	ConsumerType string         `bun:"consumer_type"`
	PausedAt     dialect.Moment `bun:"paused_at"`
	PausedBy     string         `bun:"paused_by"`
	Note         string         `bun:"note"`
}

// Pause keeps messages of the stored consumer types from being claimed. Those
// that are paused already stay so since when they were, and by whom.
func (s *Store) Pause(ctx context.Context, db bun.IDB, consumers []string, by, note string) error {
	return s.forEach(ctx, db, `INSERT INTO {paused} (consumer_type, paused_at, paused_by, note) VALUES (?, {now}, ?, ?) {keep consumer}`, consumers,
		errorlog.Clean(by, 255), errorlog.Clean(note, 1000))
}

// Resume lets messages of the stored consumer types be claimed again.
func (s *Store) Resume(ctx context.Context, db bun.IDB, consumers []string) error {
	return s.forEach(ctx, db, `DELETE FROM {paused} WHERE consumer_type = ?`, consumers)
}

// forEach runs a statement for each name, in one order, so that no two callers can deadlock.
func (s *Store) forEach(ctx context.Context, db bun.IDB, statement string, names []string, args ...any) error {
	return txn.InTx(ctx, db, func(tx bun.Tx) error {
		for _, name := range slices.Sorted(slices.Values(names)) {
			if _, err := s.names.Query(ctx, tx, statement, append([]any{name}, args...)...).Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// PausedConsumers lists what is paused, by name.
func (s *Store) PausedConsumers(ctx context.Context, db bun.IDB) ([]Paused, error) {
	return read[[]Paused](ctx, s, db, `SELECT consumer_type, paused_at, paused_by, note FROM {paused} ORDER BY consumer_type`)
}
