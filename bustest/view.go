package bustest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// producedSource is where [RequireProduced] looks: a [*Kit] for committed messages, delivered or not; a
// transaction, with [Kit.In]; or a [*FakeProducer].
type producedSource interface {
	produced() ([]*bus.Message, bus.Codec, error)
}

// scheduledSource is where [RequireScheduled] looks: a [*Kit], or a transaction, with [Kit.In].
type scheduledSource interface {
	scheduled() ([]schedule.Schedule, bus.Codec, error)
}

// poisonedSource is where [RequirePoisoned] looks: a [*Kit], or a transaction, with [Kit.In].
type poisonedSource interface {
	poisoned() ([]poison.Message, bus.Codec, error)
}

// View is the library's tables as a transaction sees them; see [Kit.In].
type View struct {
	kit       *Kit
	db        bus.Handle
	delivered map[uuid.UUID]bus.Message // from these tables
}

// In lets assertions read an open transaction, with its uncommitted writes. A test can pass the
// transaction to its code, assert, and roll back. No consumer runs.
func (k *Kit) In(tx bus.Handle) View { return View{kit: k, db: tx} }

// through reads what the handle sees.
func through[T any](v View, read func(v View, db bun.IDB) (T, error)) (all T, codec bus.Codec, err error) {
	err = txn.Through(v.kit.Context(), v.db, v.kit.db.Dialect(), func(db bun.IDB) (err error) {
		all, err = read(v, db)
		return err
	})
	return all, v.kit.Registry.Codec(), err
}

// produced returns pending, poisoned and delivered messages, each produced message once.
func (v View) produced() ([]*bus.Message, bus.Codec, error) { return through(v, View.readProduced) }

func (v View) scheduled() ([]schedule.Schedule, bus.Codec, error) {
	return through(v, View.readScheduled)
}

func (v View) poisoned() ([]poison.Message, bus.Codec, error) { return through(v, View.readPoisoned) }

func (v View) readProduced(db bun.IDB) ([]*bus.Message, error) {
	found := map[uuid.UUID]*bus.Message{}
	rows, err := v.kit.store.Pending.Messages(v.kit.Context(), db)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	for _, row := range rows {
		headers := store.Headers(row.Headers)
		found[row.MessageID] = &bus.Message{
			ID: row.MessageID, PayloadType: row.PayloadType, Payload: row.Payload, Schema: store.TakeSchema(headers), Headers: headers,
			InsertID: row.InsertID, CreatedAt: row.CreatedAt.Time, AvailableAt: row.AvailableAfter.Time,
		}
	}
	poisoned, err := v.readPoisoned(db)
	if err != nil {
		return nil, err
	}
	for _, p := range poisoned {
		if found[p.MessageID] == nil {
			found[p.MessageID] = &bus.Message{ID: p.MessageID, PayloadType: p.PayloadType, Payload: p.Payload, InsertID: p.InsertID,
				Schema: store.TakeSchema(p.Headers), Headers: p.Headers, CreatedAt: p.CreatedAt}
		}
	}
	for id, m := range v.delivered {
		found[id] = &m
	}
	for id, m := range found {
		if p, ok := v.kit.places.Load(id); ok {
			m.OrderingKey, m.Priority = p.(place).key, p.(place).priority
		}
	}
	// A producer's ids are in the order in which it produced.
	return slices.SortedFunc(maps.Values(found), func(a, b *bus.Message) int { return bytes.Compare(a.ID[:], b.ID[:]) }), nil
}

func (v View) readScheduled(db bun.IDB) (all []schedule.Schedule, err error) {
	for page := new(admin.Page); page != nil; {
		var schedules []schedule.Schedule
		if schedules, page, err = v.kit.Scheduler.List(v.kit.Context(), db, schedule.Filter{}, *page); err != nil {
			return nil, err
		}
		all = append(all, schedules...)
	}
	return all, nil
}

func (v View) readPoisoned(db bun.IDB) (all []poison.Message, err error) {
	for page := new(admin.Page); page != nil; {
		var messages []poison.Message
		if messages, page, err = v.kit.Poison.List(v.kit.Context(), db, poison.Filter{}, *page); err != nil {
			return nil, err
		}
		all = append(all, messages...)
	}
	return all, nil
}

// all returns the stored messages and those delivered from the tables. Both were committed.
func (k *Kit) all() View { return View{kit: k, db: k.db, delivered: k.delivered} }

func (k *Kit) produced() ([]*bus.Message, bus.Codec, error) { return k.all().produced() }

func (k *Kit) scheduled() ([]schedule.Schedule, bus.Codec, error) { return k.all().scheduled() }

func (k *Kit) poisoned() ([]poison.Message, bus.Codec, error) { return k.all().poisoned() }
