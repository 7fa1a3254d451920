package poison

import (
	"context"
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
func (s *Store) Requeue(ctx context.Context, db bus.Handle, ids ...int64) (Result, error) {
	total, err := store.Counted(ctx, s.stores, db, errUnmade, func(_ *store.Store, db bun.IDB, total *Result) error {
		for part := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), batch) {
			done, _, _, err := s.requeue(ctx, db, store.PoisonFilter{IDs: part}, len(part), nil)
			if err != nil {
				return err
			}
			done.Missing = len(part) - done.Requeued - done.Conflicts
			*total = total.plus(done)
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
func (s *Store) RequeueWhere(ctx context.Context, db bus.Handle, filter Filter, limit int) (Result, error) {
	if limit < 1 {
		return Result{}, fmt.Errorf("poison: requeue where: limit %d: %w: 1 or more is allowed", limit, bus.ErrInvalidOption)
	}
	if err := filter.check(); err != nil {
		return Result{}, dberr.Wrap(err, "poison: requeue where")
	}
	total, err := store.Counted(ctx, s.stores, db, errUnmade, func(st *store.Store, db bun.IDB, total *Result) error {
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
		done, last, _, err := s.requeue(ctx, db, f, min(limit, batch), nil)
		if err != nil {
			return err
		}
		*total = total.plus(done)
		n := done.Requeued + done.Conflicts
		if n < min(limit, batch) {
			break
		}
		limit -= n
		f.AfterID = last // skip conflicts, which stay poisoned
	}
	return nil
}

func (r Result) plus(other Result) Result {
	return Result{r.Requeued + other.Requeued, r.Unhandled + other.Unhandled, r.Conflicts + other.Conflicts, r.Missing + other.Missing}
}

// requeue requeues one batch, restricted to the given consumers unless there are none. It returns
// the highest id in the batch, which is 0 when no message matched, and the rows with their new ids.
func (s *Store) requeue(
	ctx context.Context, db bun.IDB, f store.PoisonFilter, limit int, consumers []string,
) (done Result, last int64, requeued []store.Poisoned, err error) {
	st, db, err := s.stores.In(ctx, db, errUnmade)
	if err != nil {
		return Result{}, 0, nil, err
	}
	var payloadTypes []string
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		done, last, requeued, payloadTypes = Result{}, 0, nil, nil
		rows, err := st.Poison.Lock(ctx, tx, f, limit)
		if err != nil || len(rows) == 0 {
			return err
		}
		last = rows[len(rows)-1].ID
		rows = store.OfConsumers(rows, consumers)
		if len(rows) == 0 {
			return nil
		}
		how, err := s.requeuing(ctx, st, tx, rows)
		if err != nil {
			return err
		}
		if requeued, err = st.Poison.Requeue(ctx, tx, rows, how); err != nil {
			return err
		}
		for _, row := range requeued {
			payloadTypes = append(payloadTypes, row.PayloadType)
			if c, ok := s.registry.Consumer(row.ConsumerType); !ok || !slices.Contains(access.PayloadTypes(c), row.PayloadType) {
				done.Unhandled++
			}
		}
		done.Requeued, done.Conflicts = len(requeued), len(rows)-len(requeued)
		return nil
	})
	if err != nil {
		return Result{}, 0, nil, err
	}
	txn.AnnounceMessages(ctx, db, s.registry, payloadTypes)
	return done, last, requeued, nil
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
