package poison

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Requeue makes poisoned messages pending again, due at once, with no attempts, crashes or errors
// counted. They keep their message id, headers and insert id, get a new row id, and go to the
// consumer under its present name: see admin.Client.Names. An id listed twice counts once.
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
		how, err := s.requeuing(ctx, tx, rows)
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
			if c, ok := s.registry.Consumer(row.ConsumerType); !ok || !slices.Contains(c.PayloadTypes(), row.PayloadType) {
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
func (s *Store) requeuing(ctx context.Context, tx bun.Tx, rows []store.Poisoned) (store.Requeuing, error) {
	how := store.Requeuing{Renamed: make(map[string]string), Former: make(map[string][]string)}
	names, err := s.admin.Names(ctx, tx)
	if err != nil {
		return how, err
	}
	for _, row := range rows {
		if how.Renamed[row.ConsumerType] != "" || how.Former[row.ConsumerType] != nil {
			continue
		}
		all := names.Of(row.ConsumerType)
		how.Former[all[0]] = all[1:]
		if all[0] != row.ConsumerType {
			how.Renamed[row.ConsumerType] = all[0]
		}
	}
	return how, nil
}

// EditAndRequeue requeues one message with another payload, in one transaction. The payload must be
// of a type that the message's consumer handles. Headers, message id and insert id stay; attempts,
// crashes and errors are reset.
//
// It returns [ErrNotFound], [ErrConflict], [ErrPayload], bus.ErrNoConsumer if the message's
// consumer is not registered, bus.ErrTooLarge above 1 MiB, or the errors of bus.Registry.Encode.
func (s *Store) EditAndRequeue(ctx context.Context, db bun.IDB, id int64, payload bus.Payload) error {
	if s.registry == nil {
		return dberr.Wrap(errUnmade, "poison: edit and requeue %d", id)
	}
	payloadType, text, err := s.registry.Encode(payload)
	if err != nil {
		return dberr.Wrap(err, "poison: edit and requeue %d", id)
	}
	return s.edit(ctx, db, id, text, func(c bus.Consumer) error {
		if !slices.Contains(c.PayloadTypes(), payloadType) {
			return fmt.Errorf("%w: consumer %q takes %q, not %q", ErrPayload, c.Name(), c.PayloadTypes(), payloadType)
		}
		return nil
	})
}

// EditAndRequeueText is [Store.EditAndRequeue] for an encoded payload, such as one typed by an
// operator. It must decode into the consumer's type with the registry's codec, else the error is
// [ErrPayload]. bus.JSON is as lenient as encoding/json: unknown fields are stored and ignored by
// the consumer, and missing fields are zero. A misspelt name is therefore not detected. To detect
// it, use [Store.CheckEdit] or EditAndRequeue.
func (s *Store) EditAndRequeueText(ctx context.Context, db bun.IDB, id int64, text []byte) error {
	return s.edit(ctx, db, id, text, func(bus.Consumer) error { return nil })
}

func (s *Store) edit(ctx context.Context, db bun.IDB, id int64, text []byte, fits func(bus.Consumer) error) error {
	st, db, err := s.stores.In(ctx, db, errUnmade)
	if err != nil {
		return dberr.Wrap(err, "poison: edit and requeue %d", id)
	}
	var payloadType string
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		rows, err := st.Poison.Lock(ctx, tx, store.PoisonFilter{IDs: []int64{id}}, 1)
		switch {
		case err != nil:
			return err
		case len(rows) == 0:
			return ErrNotFound
		}
		c, ok := s.registry.Consumer(rows[0].ConsumerType)
		if !ok {
			return fmt.Errorf("consumer %q: %w", rows[0].ConsumerType, bus.ErrNoConsumer)
		}
		if payloadType = c.PayloadType(); c.Raw() {
			payloadType = rows[0].PayloadType
		}
		m := bus.Message{PayloadType: payloadType, Payload: text}
		if err := errors.Join(fits(c), m.Check(limits.Payload)); err != nil {
			return err
		}
		if err := c.CheckPayload(s.registry.Codec(), text); err != nil {
			return fmt.Errorf("%w: %w", ErrPayload, err)
		}
		how, err := s.requeuing(ctx, tx, rows)
		if err != nil {
			return err
		}
		how.Payload, how.PayloadType = text, payloadType
		requeued, err := st.Poison.Requeue(ctx, tx, rows, how)
		if err == nil && len(requeued) == 0 {
			return ErrConflict
		}
		return err
	})
	if err != nil {
		return dberr.Wrap(err, "poison: edit and requeue %d", id)
	}
	txn.AnnounceMessages(ctx, db, s.registry, []string{payloadType})
	return nil
}
