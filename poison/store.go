package poison

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/paging"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Errors of this package; use errors.Is. For an invalid payload they wrap errors of package bus.
var (
	// ErrNotFound is returned when no poisoned message has the id.
	ErrNotFound = errors.New("no such poisoned message")
	// ErrConflict is returned when the message's insert id is already pending again.
	ErrConflict = errors.New("the message's insert id is already pending")
	// ErrPayload is returned when an edited payload does not fit the message's consumer.
	ErrPayload = errors.New("payload does not fit the consumer")
)

// errUnmade is returned by the zero Store, which under fx is what a constructor gets.
var errUnmade = errors.New("the store was not made by NewStore; under fx use it from OnStart on")

const batch = 500 // messages per transaction

// Store lists, requeues and discards poisoned messages. It holds no database, and is safe for
// concurrent use. Make one with [NewStore]: methods of the zero value return an error.
//
// Given a transaction, its methods work in it. Given a *bun.DB or bun.Conn, methods that change
// data use their own transactions, one per 500 messages. On an error they still return what is
// done: nothing if db is a transaction. With the context of outbox.Producer.RunInTx, or of a
// transactional consumer, methods that change data need that transaction as db: see
// outbox.ErrNotInTx.
//
// All methods return outbox.ErrSchemaOutdated when the tables are missing. They return database
// errors wrapped.
type Store struct {
	registry *bus.Registry
	stores   store.Stores
	admin    *admin.Client // names of consumers and live processes
}

// NewStore makes a store for the registry's tables. The only error is for a nil registry.
func NewStore(registry *bus.Registry) (*Store, error) {
	if registry == nil {
		return nil, errors.New("poison: NewStore: the registry is nil")
	}
	client, err := admin.NewClient(registry)
	if err != nil {
		return nil, fmt.Errorf("poison: NewStore: %w", err)
	}
	return &Store{registry: registry, stores: store.All(registry), admin: client}, nil
}

// List returns a page of poisoned messages, newest first, and the next page, which is nil after the
// last one. Pass the same filter with each page. Concurrent changes do not disturb it: a message
// that exists from the first page to the last is listed exactly once.
func (s *Store) List(ctx context.Context, db bun.IDB, filter Filter, page admin.Page) ([]Message, *admin.Page, error) {
	size, place, mistake := paging.Start(page.Size, page.After)
	st, db, err := s.stores.Of(db, errUnmade)
	if err = errors.Join(err, mistake, filter.check()); err != nil {
		return nil, nil, dberr.Wrap(err, "poison: list")
	}
	f := filter.rows()
	if page.After != "" {
		f.BeforeAt, f.BeforeID = place.At(), place.ID
	}
	read := st.Poison.List
	if page.Brief {
		read = st.Poison.ListBriefly
	}
	rows, err := read(ctx, db, f, size+1)
	if err != nil {
		return nil, nil, dberr.Wrap(err, "poison: list")
	}
	var next *admin.Page
	if len(rows) > size {
		rows = rows[:size]
		last := rows[size-1]
		next = &admin.Page{Size: size, Brief: page.Brief, After: paging.After(paging.Place{Micros: last.PoisonedAt.UnixMicro(), ID: last.ID})}
	}
	return store.Each(rows, shown), next, nil
}

// Count returns the number of poisoned messages that match. It has no bound, so its cost grows with
// the number of messages.
func (s *Store) Count(ctx context.Context, db bun.IDB, filter Filter) (int, error) {
	st, db, err := s.stores.Of(db, errUnmade)
	if err = errors.Join(err, filter.check()); err != nil {
		return 0, dberr.Wrap(err, "poison: count")
	}
	n, err := st.Poison.Count(ctx, db, filter.rows(), math.MaxInt)
	return n, dberr.Wrap(err, "poison: count")
}

// Get returns one poisoned message, or [ErrNotFound].
func (s *Store) Get(ctx context.Context, db bun.IDB, id int64) (Message, error) {
	st, db, err := s.stores.Of(db, errUnmade)
	if err != nil {
		return Message{}, dberr.Wrap(err, "poison: get %d", id)
	}
	row, found, err := st.Poison.Get(ctx, db, id)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return Message{}, dberr.Wrap(err, "poison: get %d", id)
	}
	return shown(row), nil
}

// Discard deletes poisoned messages permanently and returns their number. Unknown ids are allowed
// and not counted; an id listed twice counts once.
func (s *Store) Discard(ctx context.Context, db bus.Handle, ids ...int64) (int, error) {
	total, err := store.Counted(ctx, s.stores, db, errUnmade, func(st *store.Store, db bun.IDB, total *int) error {
		for part := range slices.Chunk(slices.Sorted(slices.Values(ids)), batch) {
			n, err := st.Poison.Delete(ctx, db, part)
			if err != nil {
				return err
			}
			*total += n
		}
		return nil
	})
	return total, dberr.Wrap(err, "poison: discard")
}

// Purge deletes messages that were poisoned longer ago than age, on the database's clock, and
// returns their number. An age of 0 deletes all; a negative age is bus.ErrInvalidOption.
func (s *Store) Purge(ctx context.Context, db bus.Handle, age time.Duration) (int, error) {
	if age < 0 {
		return 0, fmt.Errorf("poison: purge: age %s: %w: 0 or more is allowed", age, bus.ErrInvalidOption)
	}
	total, err := store.Counted(ctx, s.stores, db, errUnmade, func(st *store.Store, db bun.IDB, total *int) error {
		return purge(ctx, st, db, age, total)
	})
	return total, dberr.Wrap(err, "poison: purge")
}

func purge(ctx context.Context, st *store.Store, db bun.IDB, age time.Duration, total *int) error {
	f := store.PoisonFilter{Aged: true, OlderThan: age}
	for {
		// The ids come first: if others delete some of them meanwhile, more may still follow.
		ids, err := st.Poison.IDs(ctx, db, f, batch)
		if err != nil || len(ids) == 0 {
			return err
		}
		n, err := st.Poison.Delete(ctx, db, ids)
		if err != nil {
			return err
		}
		*total += n
		f.AfterID = ids[len(ids)-1]
	}
}
