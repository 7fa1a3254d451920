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
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// EditAndRequeue requeues one message with another payload, in one transaction. The payload must be
// of a type that the message's consumer handles. Headers, message id and insert id stay; attempts,
// crashes and errors are reset. If the message's ordering key came from its stored payload, it is
// replaced by the key of the edited payload.
//
// It returns [ErrNotFound], [ErrConflict], [ErrPayload], bus.ErrNoConsumer if the message's consumer
// is not registered, bus.ErrTooLarge above 1 MiB, or the errors of outbox.Producer.Produce for such a
// payload.
func (s *Store) EditAndRequeue(ctx context.Context, db bus.Handle, id int64, payload bus.Payload) error {
	if s.registry == nil {
		return dberr.Wrap(errUnmade, "poison: edit and requeue %d", id)
	}
	payloadType, text, err := access.Encode(s.registry, payload)
	if err != nil {
		return dberr.Wrap(err, "poison: edit and requeue %d", id)
	}
	m := bus.Message{PayloadType: payloadType, Payload: text, Value: payload}
	m.Schema = access.Schema(s.registry, &m)
	return s.edit(ctx, db, id, m, func(c bus.Consumer) error {
		if !slices.Contains(access.PayloadTypes(c), payloadType) {
			return fmt.Errorf("%w: consumer %q handles %q, not %q", ErrPayload, c.Name(), access.PayloadTypes(c), payloadType)
		}
		return nil
	})
}

// edit requeues a message with the payload of another one. A schema of 0 is that of the stored
// payload.
func (s *Store) edit(ctx context.Context, h bus.Handle, id int64, edited bus.Message, fits func(bus.Consumer) error) error {
	err := s.stores.Through(ctx, h, errUnmade, func(st *store.Store, db bun.IDB) error {
		return s.editIn(ctx, st, db, id, edited, fits)
	})
	return dberr.Wrap(err, "poison: edit and requeue %d", id)
}

func (s *Store) editIn(
	ctx context.Context, st *store.Store, db bun.IDB, id int64, edited bus.Message, fits func(bus.Consumer) error,
) error {
	var payloadType string
	err := txn.InTx(ctx, db, func(tx bun.Tx) error {
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
		if payloadType = c.PayloadType(); access.Raw(c) {
			payloadType = rows[0].PayloadType
		}
		m := bus.Message{PayloadType: payloadType, Payload: edited.Payload, Schema: edited.Schema}
		if err := errors.Join(fits(c), access.CheckMessage(&m, limits.Payload)); err != nil {
			return err
		}
		if err := s.reschema(ctx, st, tx, id, &m); err != nil {
			return err
		}
		if err := access.CheckStored(c, s.registry.Codec(), &m); err != nil {
			return fmt.Errorf("%w: %w", ErrPayload, err)
		}
		if err := s.rekey(ctx, st, tx, id, &m); err != nil {
			return err
		}
		how, err := s.requeuing(ctx, st, tx, rows)
		if err != nil {
			return err
		}
		how.Payload, how.PayloadType = m.Payload, payloadType
		requeued, err := st.Poison.Requeue(ctx, tx, rows, how)
		if err == nil && len(requeued) == 0 {
			return ErrConflict
		}
		return err
	})
	if err == nil {
		txn.AnnounceMessages(ctx, db, s.registry, []string{payloadType})
	}
	return err
}

// reschema stores the schema of an edited payload with a locked message, or reads the stored one.
func (s *Store) reschema(ctx context.Context, st *store.Store, tx bun.Tx, id int64, edited *bus.Message) error {
	rows, err := st.Poison.List(ctx, tx, store.PoisonFilter{IDs: []int64{id}}, 1)
	if err != nil || len(rows) == 0 {
		return err
	}
	headers := store.Headers(rows[0].Headers)
	before := store.TakeSchema(headers)
	if edited.Schema == 0 {
		edited.Schema = before
	}
	if edited.Schema == before {
		return nil
	}
	text, err := store.EncodeHeaders(headers, store.Extras{Schema: edited.Schema})
	if err != nil {
		return err
	}
	return st.Poison.SetHeaders(ctx, tx, id, text)
}

// rekey gives a locked message the key of its edited payload. It keeps a key that the producer chose,
// which is not the one of the stored payload.
func (s *Store) rekey(ctx context.Context, st *store.Store, tx bun.Tx, id int64, edited *bus.Message) error {
	rows, err := st.Poison.List(ctx, tx, store.PoisonFilter{IDs: []int64{id}}, 1)
	if err != nil || len(rows) == 0 || rows[0].OrderKey == "" {
		return err
	}
	stored := bus.Message{PayloadType: rows[0].PayloadType, Payload: rows[0].Payload}
	stored.Schema = store.TakeSchema(store.Headers(rows[0].Headers))
	if access.SetKey(s.registry, &stored) != nil || stored.OrderingKey != rows[0].OrderKey {
		return nil //nolint:nilerr // a payload without a key of its own
	}
	if err := access.SetKey(s.registry, edited); err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	if edited.OrderingKey == rows[0].OrderKey {
		return nil
	}
	return st.Poison.Rekey(ctx, tx, id, edited.OrderingKey)
}
