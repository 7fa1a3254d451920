package poison

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Requeue makes poisoned messages pending again, at once, with no attempts and
// no crashes counted. They keep their message id, headers and insert id. An id
// listed twice counts once.
func (s *Store) Requeue(ctx context.Context, db bun.IDB, ids ...int64) (Result, error) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	var total Result
	for part := range slices.Chunk(ids, batch) {
		result, _, err := s.requeue(ctx, db, store.PoisonFilter{IDs: part}, len(part))
		if err != nil {
			return total, fmt.Errorf("poison: requeue: %w", err)
		}
		result.Missing = len(part) - result.Requeued - result.Conflicts
		total = total.plus(result)
	}
	return total, nil
}

// RequeueWhere requeues the messages that match, at most limit of them, in
// batches. The zero filter matches every poisoned message.
func (s *Store) RequeueWhere(ctx context.Context, db bun.IDB, filter Filter, limit int) (Result, error) {
	if limit < 1 {
		return Result{}, fmt.Errorf("poison: requeue where: limit %d: 1 or more is allowed", limit)
	}
	st, err := s.on(db)
	if err = errors.Join(err, filter.check()); err != nil {
		return Result{}, fmt.Errorf("poison: requeue where: %w", err)
	}
	var total Result
	f := filter.rows()
	// What is poisoned from now on may be what this call has requeued.
	if f.UpToID, err = st.LastPoisoned(ctx, db, f); err != nil || f.UpToID == 0 {
		if err != nil {
			err = fmt.Errorf("poison: requeue where: %w", err)
		}
		return Result{}, err
	}
	for limit > 0 {
		result, last, err := s.requeue(ctx, db, f, min(limit, batch))
		if err != nil {
			return total, fmt.Errorf("poison: requeue where: %w", err)
		}
		total = total.plus(result)
		n := result.Requeued + result.Conflicts
		if n < min(limit, batch) {
			break
		}
		limit -= n
		f.AfterID = last // past the conflicts, which stay
	}
	return total, nil
}

func (r Result) plus(other Result) Result {
	return Result{r.Requeued + other.Requeued, r.Conflicts + other.Conflicts, r.Missing + other.Missing}
}

// requeue works on one batch and returns the last id it looked at.
func (s *Store) requeue(ctx context.Context, db bun.IDB, f store.PoisonFilter, limit int) (result Result, last int64, err error) {
	st, err := s.on(db)
	if err != nil {
		return Result{}, 0, err
	}
	var payloadTypes []string
	err = store.InTx(ctx, db, func(tx bun.Tx) error {
		result, payloadTypes = Result{}, nil
		rows, err := st.LockPoisoned(ctx, tx, f, limit)
		if err != nil || len(rows) == 0 {
			return err
		}
		last = rows[len(rows)-1].ID
		requeued, err := st.Requeue(ctx, tx, rows, store.Requeuing{Renamed: s.renamed(rows)})
		if err != nil {
			return err
		}
		for _, row := range requeued {
			payloadTypes = append(payloadTypes, row.PayloadType)
		}
		result = Result{Requeued: len(requeued), Conflicts: len(rows) - len(requeued)}
		return nil
	})
	if err != nil {
		return Result{}, 0, err
	}
	s.wake(db, payloadTypes)
	return result, last, nil
}

// renamed lists consumers that these messages know by a former name.
func (s *Store) renamed(rows []store.Poisoned) map[string]string {
	names := make(map[string]string)
	for _, row := range rows {
		if c, ok := s.registry.Consumer(row.ConsumerType); ok && c.Name() != row.ConsumerType {
			names[row.ConsumerType] = c.Name()
		}
	}
	return names
}

// wake tells this process's processors; in the caller's transaction it can only
// tell them to look soon.
func (s *Store) wake(db bun.IDB, payloadTypes []string) {
	if len(payloadTypes) > 0 {
		db, _ = store.Handle(db)
		_, inCallersTx := db.(bun.Tx)
		s.registry.Wakeups().Send(bus.Wake{PayloadTypes: payloadTypes, Expected: inCallersTx})
	}
}

// EditAndRequeue requeues one message with another payload. It must be of the
// type that the message's consumer takes; headers and ids stay. It returns
// [ErrNotFound], [ErrConflict], [ErrPayload], or what bus.Registry.Encode returns.
func (s *Store) EditAndRequeue(ctx context.Context, db bun.IDB, id int64, payload bus.Payload) error {
	payloadType, text, err := s.registry.Encode(payload)
	if err != nil {
		return fmt.Errorf("poison: edit and requeue %d: %w", id, err)
	}
	return s.edit(ctx, db, id, text, func(c bus.Consumer) error {
		if !slices.Contains(c.PayloadTypes(), payloadType) {
			return fmt.Errorf("%w: consumer %q takes %q, not %q", ErrPayload, c.Name(), c.PayloadTypes(), payloadType)
		}
		return nil
	})
}

// EditAndRequeueText is [Store.EditAndRequeue] for a payload that is encoded
// already, as an operator types it. It must decode into the consumer's type.
func (s *Store) EditAndRequeueText(ctx context.Context, db bun.IDB, id int64, text []byte) error {
	return s.edit(ctx, db, id, text, func(bus.Consumer) error { return nil })
}

func (s *Store) edit(ctx context.Context, db bun.IDB, id int64, text []byte, fits func(bus.Consumer) error) error {
	st, err := s.on(db)
	if err != nil {
		return fmt.Errorf("poison: edit and requeue %d: %w", id, err)
	}
	var payloadType string
	err = store.InTx(ctx, db, func(tx bun.Tx) error {
		rows, err := st.LockPoisoned(ctx, tx, store.PoisonFilter{IDs: []int64{id}}, 1)
		switch {
		case err != nil:
			return err
		case len(rows) == 0:
			return ErrNotFound
		}
		row := rows[0]
		c, ok := s.registry.Consumer(row.ConsumerType)
		if !ok {
			return fmt.Errorf("consumer %q: %w", row.ConsumerType, bus.ErrNoConsumer)
		}
		m := bus.Message{PayloadType: c.PayloadType(), Payload: text}
		if err := errors.Join(fits(c), m.Check(bus.DefaultMaxPayload)); err != nil {
			return err
		}
		if err := c.CheckPayload(s.registry.Codec(), text); err != nil {
			return fmt.Errorf("%w: %w", ErrPayload, err)
		}
		payloadType = c.PayloadType()
		requeued, err := st.Requeue(ctx, tx, rows, store.Requeuing{Renamed: s.renamed(rows), Payload: text, PayloadType: payloadType})
		if err == nil && len(requeued) == 0 {
			return ErrConflict
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("poison: edit and requeue %d: %w", id, err)
	}
	s.wake(db, []string{payloadType})
	return nil
}
