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
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Produced is where [RequireProduced] looks: a [*Kit] for committed messages, delivered or not; a
// transaction, with [Kit.In]; or a [*FakeProducer].
type Produced interface {
	produced() ([]*bus.Message, bus.Codec, error)
}

// Scheduled is where [RequireScheduled] looks: a [*Kit], or a transaction, with [Kit.In].
type Scheduled interface {
	scheduled() ([]schedule.Schedule, bus.Codec, error)
}

// Poisoned is where [RequirePoisoned] looks: a [*Kit], or a transaction, with [Kit.In].
type Poisoned interface {
	poisoned() ([]poison.Message, bus.Codec, error)
}

// View is the library's tables as a transaction sees them; see [Kit.In].
type View struct {
	kit       *Kit
	db        bun.IDB
	delivered map[uuid.UUID]bus.Message // from these tables
}

// In lets assertions read an open transaction, with its uncommitted writes. A test can pass the
// transaction to its code, assert, and roll back. No consumer runs.
func (k *Kit) In(tx bun.IDB) View { return View{kit: k, db: tx} }

// produced returns pending, poisoned and delivered messages, each produced message once.
func (v View) produced() ([]*bus.Message, bus.Codec, error) {
	found := map[uuid.UUID]*bus.Message{}
	rows, err := v.kit.store.Pending.Messages(v.kit.Context(), v.db)
	if err != nil {
		return nil, nil, fmt.Errorf("read messages: %w", err)
	}
	for _, row := range rows {
		found[row.MessageID] = &bus.Message{
			ID: row.MessageID, PayloadType: row.PayloadType, Payload: row.Payload, Headers: store.Headers(row.Headers),
			InsertID: row.InsertID, CreatedAt: row.CreatedAt.Time, AvailableAt: row.AvailableAfter.Time,
		}
	}
	poisoned, _, err := v.poisoned()
	if err != nil {
		return nil, nil, err
	}
	for _, p := range poisoned {
		if found[p.MessageID] == nil {
			found[p.MessageID] = &bus.Message{ID: p.MessageID, PayloadType: p.PayloadType, Payload: p.Payload, InsertID: p.InsertID,
				Headers: p.Headers, CreatedAt: p.CreatedAt}
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
	inOrder := slices.SortedFunc(maps.Values(found), func(a, b *bus.Message) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return inOrder, v.kit.Registry.Codec(), nil
}

func (v View) scheduled() (all []schedule.Schedule, _ bus.Codec, err error) {
	for page := new(schedule.Page); page != nil; {
		var schedules []schedule.Schedule
		if schedules, page, err = v.kit.Scheduler.List(v.kit.Context(), v.db, schedule.Filter{}, *page); err != nil {
			return nil, nil, err
		}
		all = append(all, schedules...)
	}
	return all, v.kit.Registry.Codec(), nil
}

func (v View) poisoned() (all []poison.Message, _ bus.Codec, err error) {
	for page := new(admin.Page); page != nil; {
		var messages []poison.Message
		if messages, page, err = v.kit.Poison.List(v.kit.Context(), v.db, poison.Filter{}, *page); err != nil {
			return nil, nil, err
		}
		all = append(all, messages...)
	}
	return all, v.kit.Registry.Codec(), nil
}

// all returns the stored messages and those delivered from the tables. Both were committed.
func (k *Kit) all() View { return View{kit: k, db: k.db, delivered: k.delivered} }

func (k *Kit) produced() ([]*bus.Message, bus.Codec, error) { return k.all().produced() }

func (k *Kit) scheduled() ([]schedule.Schedule, bus.Codec, error) { return k.all().scheduled() }

func (k *Kit) poisoned() ([]poison.Message, bus.Codec, error) { return k.all().poisoned() }
