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

// Pause keeps messages of the stored consumer types from being claimed. Consumers that are already
// paused keep their time and author.
func (s *FlowStore) Pause(ctx context.Context, db bun.IDB, consumers []string, by, note string) error {
	_, err := s.forEach(ctx, db,
		`INSERT INTO {paused} (consumer_type, paused_at, paused_by, note) VALUES (?, {now}, ?, ?) {keep consumer}`, consumers,
		errorlog.Clean(by, 255), errorlog.Clean(note, 1000))
	return err
}

// Resume lets messages of the stored consumer types be claimed again. It returns false if none was
// paused.
func (s *FlowStore) Resume(ctx context.Context, db bun.IDB, consumers []string) (paused bool, err error) {
	n, err := s.forEach(ctx, db, `DELETE FROM {paused} WHERE consumer_type = ?`, consumers)
	return n > 0, err
}

// forEach runs a statement for each name and counts the rows. It goes in one order, so that no two
// callers can deadlock.
func (s *FlowStore) forEach(ctx context.Context, db bun.IDB, statement string, names []string, args ...any) (rows int, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		for _, name := range slices.Sorted(slices.Values(names)) {
			n, err := s.names.Changed(ctx, tx, statement, append([]any{name}, args...)...)
			if err != nil {
				return err
			}
			rows += n
		}
		return nil
	})
	return rows, err
}

// PausedConsumers returns the paused consumers, by name.
func (s *FlowStore) PausedConsumers(ctx context.Context, db bun.IDB) ([]Paused, error) {
	return read[[]Paused](ctx, s.tables, db, `SELECT consumer_type, paused_at, paused_by, note FROM {paused} ORDER BY consumer_type`)
}
