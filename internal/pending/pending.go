package pending

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// mostListed is the maximum length of lists.
const mostListed = 1000

// Reader reads pending messages. It is safe for concurrent use. Make one with [NewReader].
type Reader struct{ stores store.Stores }

// NewReader returns a reader of the registry's tables.
func NewReader(registry *bus.Registry) *Reader { return &Reader{store.All(registry)} }

var errNoDatabase = errors.New("the reader was not made by NewReader")

// Functions of package admin; immutable.
var (
	message = hooks.Function[func(row store.Pending) admin.Message]("admin.Message")
	claim   = hooks.Function[func(row store.HeldBy) admin.Claim]("admin.Claim")
)

func checkLimit(n int) error {
	if n < 1 || n > mostListed {
		return fmt.Errorf("%w: limit %d: 1 to %d is allowed", bus.ErrInvalidOption, n, mostListed)
	}
	return nil
}

// ListByID returns up to 1000 pending messages by id, as admin.Client.List does. Missing ids are
// left out.
func (r *Reader) ListByID(ctx context.Context, db bun.IDB, ids ...int64) ([]admin.Message, error) {
	st, db, err := r.stores.Of(db, errNoDatabase)
	if err = errors.Join(checkLimit(max(len(ids), 1)), err); err != nil || len(ids) == 0 {
		return nil, dberr.Wrap(err, "admin: list by id")
	}
	found, err := st.Pending.ByID(ctx, db, ids)
	return store.Each(found, message), dberr.Wrap(err, "admin: list by id")
}

// Head is admin.Client.Get with at most maxBytes bytes of the payload, cut between two characters.
// It reads no more than that; PayloadBytes is the full size. A negative maxBytes is
// bus.ErrInvalidOption.
func (r *Reader) Head(ctx context.Context, db bun.IDB, id int64, maxBytes int) (admin.Message, error) {
	st, db, err := r.stores.Of(db, errNoDatabase)
	if err == nil && maxBytes < 0 {
		err = fmt.Errorf("%d bytes of its payload: %w: 0 or more are allowed", maxBytes, bus.ErrInvalidOption)
	}
	if err != nil {
		return admin.Message{}, dberr.Wrap(err, "admin: get %d", id)
	}
	row, found, err := st.Pending.Head(ctx, db, id, maxBytes)
	if err == nil && !found {
		err = admin.ErrNotFound
	}
	if err != nil {
		return admin.Message{}, dberr.Wrap(err, "admin: get %d", id)
	}
	m := message(row)
	m.Payload = errorlog.Cut(m.Payload, maxBytes)
	return m, nil
}

// Claims lists the claims of all processors, the oldest first. It returns all of them: about as
// many as batches in flight.
func (r *Reader) Claims(ctx context.Context, db bun.IDB) ([]admin.Claim, error) {
	found, err := store.Listed(r.stores, db, errNoDatabase, func(st *store.Store, db bun.IDB) ([]store.HeldBy, error) {
		return st.Pending.Claims(ctx, db)
	}, claim)
	return found, dberr.Wrap(err, "admin: claims")
}

// ListClaimed lists the messages that a claim holds now, as admin.Client.List does. It returns none
// if the claim is gone.
func (r *Reader) ListClaimed(ctx context.Context, db bun.IDB, id int64) ([]admin.Message, error) {
	found, err := store.Listed(r.stores, db, errNoDatabase, func(st *store.Store, db bun.IDB) ([]store.Pending, error) {
		return st.Pending.ClaimedMessages(ctx, db, id)
	}, message)
	return found, dberr.Wrap(err, "admin: messages of claim %d", id)
}

// BlockedKey is a key whose messages wait until a poisoned message is requeued or discarded: see
// bus.BlockKey.
type BlockedKey struct {
	Consumer string    `json:"consumer"`
	Key      string    `json:"key"`
	Poisoned int64     `json:"poisoned"` // id of the first message that blocks it, for poison.Store
	Since    time.Time `json:"since,omitzero"`
	Waiting  int64     `json:"waiting"` // messages of the key that wait; 10,000 means "or more"
}

// BlockedKeys returns the n keys of a consumer, or of all if it is empty, that have been blocked the longest; n is 1 to 1000.
func (r *Reader) BlockedKeys(ctx context.Context, db bun.IDB, consumer string, n int) ([]BlockedKey, error) {
	found, err := store.Listed(r.stores, db, errNoDatabase, func(st *store.Store, db bun.IDB) ([]store.BlockedKey, error) {
		if err := checkLimit(n); err != nil {
			return nil, err
		}
		return st.Keys.List(ctx, db, consumer, n)
	}, func(row store.BlockedKey) BlockedKey {
		return BlockedKey{Consumer: row.ConsumerType, Key: row.OrderKey, Poisoned: row.Poisoned, Since: row.Since.Time, Waiting: row.Waiting}
	})
	return found, dberr.Wrap(err, "admin: keys")
}

// Crash is the loss of a process while it held a message.
type Crash struct {
	ID       int64  `json:"id"` // id of the message
	Consumer string `json:"consumer"`
	Owner    string `json:"owner"` // the ID of its Process
	// Isolated is true if the message was the only suspect that ran there, which identifies it as
	// the cause.
	Isolated bool      `json:"isolated"`
	At       time.Time `json:"at"` // when the loss was detected
}

// Crashes returns the crashes of a message, or of all messages if id is 0, the most recent first.
// Crashes are kept for 7 days. The limit is 1 to 1000.
func (r *Reader) Crashes(ctx context.Context, db bun.IDB, id int64, limit int) ([]Crash, error) {
	found, err := store.Listed(r.stores, db, errNoDatabase, func(st *store.Store, db bun.IDB) ([]store.Crash, error) {
		if err := checkLimit(limit); err != nil {
			return nil, err
		}
		return st.Reports.Crashes(ctx, db, id, limit)
	}, func(row store.Crash) Crash {
		return Crash{ID: row.RowID, Consumer: row.ConsumerType, Owner: row.Owner, Isolated: row.Solo, At: row.CrashedAt.Time}
	})
	return found, dberr.Wrap(err, "admin: crashes of %d", id)
}
