package poisoned

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// mostInChunk is the maximum number of messages in a chunk.
const mostInChunk = 500

// Chunk is a part of a change of many messages: those that match, in the order of their ids.
type Chunk struct {
	Filter poison.Filter
	// After excludes ids up to this one: [ChunkResult.Last] of the previous chunk, or 0.
	After int64
	// UpTo excludes ids above this one and is required: a message that is requeued and fails again
	// gets a higher id. Use poison.Preview.UpTo. It is 0 if no message matches; a chunk refuses 0.
	UpTo int64
	// Limit is the maximum number of messages in the chunk: 1 to 500.
	Limit int
	// Consumers, unless empty, lists the consumers whose messages may be changed. Other messages in
	// the chunk stay unchanged and are not counted.
	Consumers []string
}

// ChunkResult is the outcome of a chunk.
type ChunkResult struct {
	poison.Result
	// Last is the highest id in the chunk, and After of the next one. It is 0 when no message
	// matched, which is the end.
	Last int64 `json:"last"`
	// Moved lists the messages that are pending again, in the order of their old ids.
	Moved []Moved `json:"moved,omitempty"`
}

// Moved maps a poisoned message to the pending one it has become.
type Moved struct {
	Old int64 `json:"old"` // id while it was poisoned
	New int64 `json:"new"` // id for admin.Client
}

// RequeueChunk is poison.Store.Requeue for one chunk. A caller that stores Last in the same transaction
// repeats and skips no message after a crash.
func (s *Store) RequeueChunk(ctx context.Context, db bun.IDB, chunk Chunk) (ChunkResult, error) {
	_, _, f, err := s.batch(ctx, db, chunk)
	if err != nil {
		return ChunkResult{}, dberr.Wrap(err, "poison: requeue batch")
	}
	done, last, rows, err := requeue(s.Store, ctx, db, f, chunk.Limit, chunk.Consumers)
	if err != nil {
		return ChunkResult{}, dberr.Wrap(err, "poison: requeue batch")
	}
	moved := store.Each(rows, func(row store.Poisoned) Moved { return Moved{Old: row.ID, New: row.NewID} })
	return ChunkResult{Result: done, Last: last, Moved: moved}, nil
}

// DiscardChunk is poison.Store.Discard for one chunk. It returns the number of deleted messages, and the
// highest id in the chunk as ChunkResult.Last does.
func (s *Store) DiscardChunk(ctx context.Context, db bun.IDB, chunk Chunk) (discarded int, last int64, err error) {
	st, db, f, err := s.batch(ctx, db, chunk)
	if err != nil {
		return 0, 0, dberr.Wrap(err, "poison: discard batch")
	}
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		discarded, last = 0, 0
		rows, err := st.Poison.Lock(ctx, tx, f, chunk.Limit)
		if err != nil || len(rows) == 0 {
			return err
		}
		last = rows[len(rows)-1].ID
		rows = store.OfConsumers(rows, chunk.Consumers)
		if len(rows) == 0 {
			return nil
		}
		discarded, err = st.Poison.Delete(ctx, tx, store.Each(rows, func(row store.Poisoned) int64 { return row.ID }))
		return err
	})
	if err != nil {
		return 0, 0, dberr.Wrap(err, "poison: discard batch")
	}
	return discarded, last, nil
}

func (s *Store) batch(ctx context.Context, db bun.IDB, chunk Chunk) (*store.Store, bun.IDB, store.PoisonFilter, error) {
	st, db, err := s.stores.In(ctx, db, errNotMade)
	if chunk.Limit < 1 || chunk.Limit > mostInChunk {
		err = errors.Join(err, fmt.Errorf("limit %d: %w: 1 to %d are allowed", chunk.Limit, bus.ErrInvalidOption, mostInChunk))
	}
	if chunk.After < 0 || chunk.UpTo < 1 {
		err = errors.Join(err,
			fmt.Errorf("after %d, up to %d: %w: after 0 or more, and up to 1 or more, are allowed", chunk.After, chunk.UpTo, bus.ErrInvalidOption))
	}
	f, mistake := rowsOf(chunk.Filter)
	f.AfterID, f.UpToID = chunk.After, chunk.UpTo
	return st, db, f, errors.Join(err, mistake)
}
