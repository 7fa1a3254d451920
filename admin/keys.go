package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// mostListed is the maximum length of lists without pages.
const mostListed = 1000

func checkLimit(n int) error {
	if n < 1 || n > mostListed {
		return fmt.Errorf("%w: limit %d: 1 to %d is allowed", bus.ErrInvalidOption, n, mostListed)
	}
	return nil
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

// BlockedKeys returns the n keys that have been blocked the longest; n is 1 to 1000.
func (a *Client) BlockedKeys(ctx context.Context, db bun.IDB, n int) ([]BlockedKey, error) {
	st, db, err := a.stores.Of(db, errNotMade)
	if err == nil {
		err = checkLimit(n)
	}
	if err != nil {
		return nil, dberr.Wrap(err, "admin: keys")
	}
	rows, err := st.Keys.List(ctx, db, n)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: keys")
	}
	return store.Each(rows, func(row store.ParkedKey) BlockedKey {
		return BlockedKey{Consumer: row.ConsumerType, Key: row.OrderKey, Poisoned: row.Poisoned, Since: row.Since.Time, Waiting: row.Waiting}
	}), nil
}

// explainKey checks whether another message of the key blocks this one. The consumer may run
// elsewhere.
func (a *Client) explainKey(ctx context.Context, db bun.IDB, st *store.Store, row store.Pending, elsewhere bool, e *Explanation) error {
	if row.Lane == 0 || !slices.Contains([]State{Ready, Delayed, Suspect, Expired, CircuitOpen}, e.Reason) {
		return nil
	}
	consumer, _ := a.registry.Consumer(e.Message.Consumer)
	if consumer.KeyConcurrency() > 0 && !elsewhere {
		return a.explainShare(ctx, db, st, consumer, row, e)
	}
	names, unless := consumer.Names(), ""
	if elsewhere || a.operates() {
		names, unless = []string{e.Message.Consumer}, ", if its consumer runs those of a key in their order"
	}
	parked, found, err := st.Keys.ParkedBy(ctx, db, names, row.Lane)
	if err != nil {
		return err
	}
	if found {
		e.Reason = KeyBlocked
		e.Text = fmt.Sprintf("Message %d of key %q was poisoned at %s, and the others of the key wait until it is requeued or discarded. poison.Store shows why, and does so.",
			parked.Poisoned, parked.OrderKey, flow.Instant(parked.Since.Time))
		return nil
	}
	id, found, err := st.Keys.FirstOfLane(ctx, db, names, row.Lane)
	if err != nil || !found || id == row.ID {
		return err
	}
	first, found, err := st.Pending.Get(ctx, db, id, false)
	if err != nil || !found {
		return err
	}
	state, text := a.reason(newMessage(first), first.PausedSince.Time, first.Now.Time)
	if elsewhere && (state == NoConsumer || state == OtherPayload) {
		_, text = a.waits(newMessage(first), first.PausedSince.Time, first.Now.Time)
	}
	e.Reason = BehindKey
	e.Text = fmt.Sprintf("It waits behind message %d of key %q%s, about which: %s", id, first.OrderKey, unless, text)
	return nil
}

// explainShare checks whether the concurrency limit of the message's key is reached.
func (a *Client) explainShare(ctx context.Context, db bun.IDB, st *store.Store, consumer bus.Consumer, row store.Pending, e *Explanation) error {
	held, err := st.Keys.HeldOfLane(ctx, db, consumer.Names(), row.Lane)
	if err != nil || e.Reason != Ready || held < consumer.KeyConcurrency() {
		return err
	}
	e.Reason = KeyLimited
	e.Text = fmt.Sprintf("It has been due since %s. %d messages of key %q are claimed, and consumer %q runs no more of a key at once, in all processes together.",
		flow.Instant(e.Message.AvailableAt), held, row.OrderKey, consumer.Name())
	return nil
}
