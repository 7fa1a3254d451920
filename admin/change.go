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

// adminBatch is how many messages are changed in one transaction.
const adminBatch = 500

// Result is what became of the messages that were named. An id listed twice
// counts once.
type Result struct {
	// Changed is the number of messages cancelled or rescheduled.
	Changed int `json:"changed"`
	// Running are ids of messages that are in a claim, or locked by another transaction. They stay
	// as they were.
	Running []int64 `json:"running,omitempty"`
	// Missing are ids that name no pending message.
	Missing []int64 `json:"missing,omitempty"`
}

// Cancel deletes pending messages for good, with their attempts and errors; their
// insert ids are free again. One that a process holds runs on: it is listed in
// [Result.Running], and Cancel does not wait for it. Consumers of the same payload
// have messages of their own.
//
// More than 500 ids are several transactions, unless db is one. On an error it
// returns what is done all the same: in a transaction of the caller's, nothing. A transaction that db is must be READ
// COMMITTED, else the error is bus.ErrInvalidOption: under a stricter isolation it
// would not see claims made since. On SQLite, a message that no process
// holds is cancelled once the database's only write lock is free.
func (a *Client) Cancel(ctx context.Context, db bun.IDB, ids ...int64) (Result, error) {
	return a.change(ctx, db, "cancel", store.PendingChange{Cancel: true}, ids)
}

// Reschedule makes pending messages due at the given time instead; one in the past
// means now, before what has been due for less long. Attempts, crashes and errors
// stay. A zero time, or a year beyond 1 to 9999 in UTC, is bus.ErrInvalidOption. For all the
// rest it is like [Client.Cancel].
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

// RunNow is [Client.Reschedule] to the database's present time. The messages run
// with the next poll of a processor that has room, those of this process at once;
// one of a paused consumer waits for [Client.Resume].
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
			changed, err := st.ChangePending(ctx, db, part, c)
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
