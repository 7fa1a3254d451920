package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// adminBatch is the number of messages changed per transaction.
const adminBatch = 500

// Result is the outcome of a change of messages by id. An id that is listed twice counts once.
type Result struct {
	// Changed is the number of messages cancelled or rescheduled.
	Changed int `json:"changed"`
	// Running lists the messages that are claimed, or locked by another transaction. They are
	// unchanged.
	Running []int64 `json:"running,omitempty"`
	// Missing lists the ids that are not pending messages.
	Missing []int64 `json:"missing,omitempty"`
}

// Cancel deletes pending messages permanently, with their attempts and errors. Their insert ids are
// free again. A message that a process holds is not cancelled: it is listed in [Result.Running],
// and Cancel does not wait for it. Other consumers of the same payload keep their own messages.
//
// More than 500 ids use several transactions, unless db is a transaction. On an error Cancel still
// returns what is done: nothing if db is a transaction. A transaction must be READ COMMITTED, else
// the error is bus.ErrInvalidOption: a stricter isolation hides claims made since it began. On
// SQLite, Cancel waits for the database's only write lock.
func (a *Client) Cancel(ctx context.Context, db bun.IDB, ids ...int64) (Result, error) {
	return a.change(ctx, db, "cancel", store.PendingChange{Cancel: true}, ids)
}

// Reschedule makes pending messages due at the given time. A time in the past means now, ahead of
// messages that became due later. Attempts, crashes and errors are kept. A zero time, or a year
// outside 1 to 9999 in UTC, is bus.ErrInvalidOption. Otherwise it behaves like [Client.Cancel].
func (a *Client) Reschedule(ctx context.Context, db bun.IDB, at time.Time, ids ...int64) (Result, error) {
	if err := checkDue(at); err != nil {
		return Result{}, err
	}
	return a.change(ctx, db, "reschedule", store.PendingChange{AvailableAt: at}, ids)
}

func checkDue(at time.Time) error {
	if year := at.UTC().Year(); at.IsZero() || year < 1 || year > 9999 {
		return fmt.Errorf("admin: reschedule to %s: %w: years 1 to 9999 in UTC are allowed", at.UTC(), bus.ErrInvalidOption)
	}
	return nil
}

// RunNow is [Client.Reschedule] to the database's current time. The messages run with the next poll
// of a processor with free capacity; processors of this process poll at once. Messages of a paused
// consumer wait for [Client.Resume].
func (a *Client) RunNow(ctx context.Context, db bun.IDB, ids ...int64) (Result, error) {
	return a.change(ctx, db, "run now", store.PendingChange{}, ids)
}

func (a *Client) change(ctx context.Context, db bun.IDB, what string, c store.PendingChange, ids []int64) (Result, error) {
	st, db, err := a.stores.In(ctx, db, errNotMade)
	if err != nil {
		return Result{}, dberr.Wrap(err, "admin: %s", what)
	}
	total, err := txn.Counted(ctx, db, func(total *Result) error {
		for part := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), adminBatch) {
			changed, err := st.Pending.Change(ctx, db, part, c)
			if err != nil {
				return err
			}
			total.Changed += len(changed.IDs)
			total.Running = append(total.Running, changed.Held...)
			total.Missing = append(total.Missing, changed.Missing...)
			if !c.Cancel {
				txn.AnnounceMessages(ctx, db, a.registry, changed.PayloadTypes)
			}
		}
		return nil
	})
	return total, dberr.Wrap(err, "admin: %s", what)
}
