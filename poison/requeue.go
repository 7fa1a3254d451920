package poison

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/names"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Requeue makes poisoned messages pending again, due at once, with no attempts, crashes or errors
// counted. They keep their message id, headers and insert id, get a new row id, and go to the
// consumer under its present name: see bus.Aliases. An id listed twice counts once.
//
// Requeue does not require a registered consumer. A message without one waits until a program
// registers it, possibly with bus.Aliases, and is counted in [Result.Unhandled].
func (s *Store) Requeue(ctx context.Context, db bun.IDB, ids ...int64) (Result, error) {
	total, err := txn.Counted(ctx, db, func(total *Result) error {
		for part := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), batch) {
			done, err := s.requeue(ctx, db, store.PoisonFilter{IDs: part}, len(part), nil)
			if err != nil {
				return err
			}
			done.Missing = len(part) - done.Requeued - done.Conflicts
			*total = total.plus(done.Result)
		}
		return nil
	})
	return total, dberr.Wrap(err, "poison: requeue")
}

// RequeueWhere is [Store.Requeue] for up to limit messages that match, in the order of their ids.
// Messages that are poisoned meanwhile are excluded. The zero filter matches every poisoned
// message. A limit below 1 is bus.ErrInvalidOption. Conflicts stay poisoned but count towards the
// limit, so fewer than limit may be requeued although more match.
//
// After an error, unless db is a transaction, another call continues with the rest.
func (s *Store) RequeueWhere(ctx context.Context, db bun.IDB, filter Filter, limit int) (Result, error) {
	if limit < 1 {
		return Result{}, fmt.Errorf("poison: requeue where: limit %d: %w: 1 or more is allowed", limit, bus.ErrInvalidOption)
	}
	st, db, err := s.stores.Of(db, errUnmade)
	if err = errors.Join(err, filter.check()); err != nil {
		return Result{}, dberr.Wrap(err, "poison: requeue where")
	}
	total, err := txn.Counted(ctx, db, func(total *Result) error {
		return s.requeueWhere(ctx, st, db, filter.rows(), limit, total)
	})
	return total, dberr.Wrap(err, "poison: requeue where")
}

func (s *Store) requeueWhere(ctx context.Context, st *store.Store, db bun.IDB, f store.PoisonFilter, limit int, total *Result) (err error) {
	// Messages poisoned from now on may have been requeued by this call.
	if f.UpToID, err = st.Poison.Last(ctx, db, f); err != nil || f.UpToID == 0 {
		return err
	}
	for limit > 0 {
		done, err := s.requeue(ctx, db, f, min(limit, batch), nil)
		if err != nil {
			return err
		}
		*total = total.plus(done.Result)
		n := done.Requeued + done.Conflicts
		if n < min(limit, batch) {
			break
		}
		limit -= n
		f.AfterID = done.Last // skip conflicts, which stay poisoned
	}
	return nil
}

func (r Result) plus(other Result) Result {
	return Result{r.Requeued + other.Requeued, r.Unhandled + other.Unhandled, r.Conflicts + other.Conflicts, r.Missing + other.Missing}
}

// requeue requeues one batch, restricted to the given consumers unless there are none.
func (s *Store) requeue(
	ctx context.Context, db bun.IDB, f store.PoisonFilter, limit int, consumers []string,
) (done ChunkResult, err error) {
	st, db, err := s.stores.In(ctx, db, errUnmade)
	if err != nil {
		return ChunkResult{}, err
	}
	var payloadTypes []string
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		done, payloadTypes = ChunkResult{}, nil
		rows, err := st.Poison.Lock(ctx, tx, f, limit)
		if err != nil || len(rows) == 0 {
			return err
		}
		done.Last = rows[len(rows)-1].ID
		if rows = ofConsumers(rows, consumers); len(rows) == 0 {
			return nil
		}
		how, err := s.requeuing(ctx, st, tx, rows)
		if err != nil {
			return err
		}
		requeued, err := st.Poison.Requeue(ctx, tx, rows, how)
		if err != nil {
			return err
		}
		for _, row := range requeued {
			payloadTypes = append(payloadTypes, row.PayloadType)
			done.Moved = append(done.Moved, Moved{Old: row.ID, New: row.NewID})
			if c, ok := s.registry.Consumer(row.ConsumerType); !ok || !slices.Contains(access.PayloadTypes(c), row.PayloadType) {
				done.Unhandled++
			}
		}
		done.Requeued, done.Conflicts = len(requeued), len(rows)-len(requeued)
		return nil
	})
	if err != nil {
		return ChunkResult{}, err
	}
	txn.AnnounceMessages(ctx, db, s.registry, payloadTypes)
	return done, nil
}

// requeuing returns the present and former names of the messages' consumers.
func (s *Store) requeuing(ctx context.Context, st *store.Store, tx bun.Tx, rows []store.Poisoned) (store.Requeuing, error) {
	how := store.Requeuing{Renamed: make(map[string]string), Former: make(map[string][]string)}
	known, err := names.Read(ctx, tx, st, s.registry)
	if err != nil {
		return how, err
	}
	for _, row := range rows {
		if how.Renamed[row.ConsumerType] != "" || how.Former[row.ConsumerType] != nil {
			continue
		}
		all := known.Of(row.ConsumerType)
		how.Former[all[0]] = all[1:]
		if all[0] != row.ConsumerType {
			how.Renamed[row.ConsumerType] = all[0]
		}
	}
	return how, nil
}

// Chunk is a part of a change of many messages: those that match, in the order of their ids.
type Chunk struct {
	Filter Filter
	// After excludes ids up to this one: [ChunkResult.Last] of the previous chunk, or 0.
	After int64
	// UpTo excludes ids above this one and is required: a message that is requeued and fails again
	// gets a higher id. Use [Preview.UpTo]. It is 0 if no message matches; a chunk refuses 0.
	UpTo int64
	// Limit is the maximum number of messages in the chunk: 1 to 500.
	Limit int
	// Consumers, unless empty, lists the consumers whose messages may be changed. Other messages in
	// the chunk stay unchanged and are not counted.
	Consumers []string
}

// ChunkResult is the outcome of a chunk.
type ChunkResult struct {
	Result
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

// RequeueChunk is [Store.Requeue] for one chunk. A caller that stores Last in the same transaction
// repeats and skips no message after a crash.
func (s *Store) RequeueChunk(ctx context.Context, db bun.IDB, chunk Chunk) (ChunkResult, error) {
	_, _, f, err := s.batch(ctx, db, chunk)
	if err != nil {
		return ChunkResult{}, dberr.Wrap(err, "poison: requeue batch")
	}
	done, err := s.requeue(ctx, db, f, chunk.Limit, chunk.Consumers)
	return done, dberr.Wrap(err, "poison: requeue batch")
}

// ofConsumers returns the rows of the given consumers, or all rows without consumers.
func ofConsumers(rows []store.Poisoned, consumers []string) []store.Poisoned {
	return slices.DeleteFunc(rows, func(row store.Poisoned) bool {
		return len(consumers) > 0 && !slices.Contains(consumers, row.ConsumerType)
	})
}

func (s *Store) batch(ctx context.Context, db bun.IDB, chunk Chunk) (*store.Store, bun.IDB, store.PoisonFilter, error) {
	st, db, err := s.stores.In(ctx, db, errUnmade)
	if chunk.Limit < 1 || chunk.Limit > batch {
		err = errors.Join(err, fmt.Errorf("limit %d: %w: 1 to %d are allowed", chunk.Limit, bus.ErrInvalidOption, batch))
	}
	if chunk.After < 0 || chunk.UpTo < 1 {
		err = errors.Join(
			err,
			fmt.Errorf("after %d, up to %d: %w: after 0 or more, and up to 1 or more, are allowed", chunk.After, chunk.UpTo, bus.ErrInvalidOption),
		)
	}
	f := chunk.Filter.rows()
	f.AfterID, f.UpToID = chunk.After, chunk.UpTo
	return st, db, f, errors.Join(err, chunk.Filter.check())
}
