package relay

import (
	"context"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	maxWindow = 50_000  // maximum positions that one batch reads
	batchSize = 4 << 20 // bytes of bodies in a batch, except for its last record
)

type outgoingBatch struct {
	records  []broker.Record
	events   []store.Event  // of the records
	messages []*bus.Message // the same, for telemetry
	revision int64          // of the broker's last record before it
	to       int64          // the position after it, once all of it is published
	failed   *store.Event   // the event after these that could not become a record
	err      error          // why
	smaller  int            // size of the next batch, because a function hangs at the event after it
}

// next reads the events after the checkpoint.
func (s *shard) next(ctx context.Context) (b outgoingBatch, err error) {
	statement, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	limit := s.limit
	if s.sub.Attempts > 0 {
		limit = 1
	}
	page := store.Page{
		After: s.sub.Position, UpTo: min(s.sub.Head, s.sub.Position+s.window), Limit: limit,
		EventFilter: store.EventFilter{Types: s.reads},
	}
	if s.logConfig.Shards > 1 {
		page.SlotFrom, page.SlotTo = s.number*store.Slots/s.logConfig.Shards, (s.number+1)*store.Slots/s.logConfig.Shards
	}
	b.to, b.revision = page.After, s.sub.Mark
	if page.UpTo <= page.After {
		return b, nil
	}
	rows, err := s.store.EventLog.ReadEvents(statement, s.db, page)
	if err != nil {
		return b, fmt.Errorf("read events: %w", err)
	}
	s.convert(ctx, &b, rows)
	if last := len(rows) - 1; b.failed == nil && b.smaller == 0 && len(rows) < limit && (last < 0 || b.to == rows[last].Position) {
		b.to = page.UpTo
		s.window = min(2*s.window, maxWindow)
	}
	return b, nil
}
