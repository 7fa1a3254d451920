package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"cmp"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
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
func (c *Client) Cancel(ctx context.Context, db bus.Handle, ids ...int64) (Result, error) {
	return c.change(ctx, db, "cancel", store.PendingChange{Cancel: true}, ids)
}

// Reschedule makes pending messages due at the given time. A time in the past means now, ahead of
// messages that became due later. Attempts, crashes and errors are kept. A zero time, or a year
// outside 1 to 9999 in UTC, is bus.ErrInvalidOption. Otherwise it behaves like [Client.Cancel].
func (c *Client) Reschedule(ctx context.Context, db bus.Handle, at time.Time, ids ...int64) (Result, error) {
	if err := checkDue(at); err != nil {
		return Result{}, err
	}
	return c.change(ctx, db, "reschedule", store.PendingChange{AvailableAt: at}, ids)
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
func (c *Client) RunNow(ctx context.Context, db bus.Handle, ids ...int64) (Result, error) {
	return c.change(ctx, db, "run now", store.PendingChange{}, ids)
}

// Repeat produces consumed messages again, each for the consumer that consumed it. It returns the
// new message ids, in ascending order of the given ids; an id listed twice counts once. A new message
// has the payload and headers of the consumed one, but no deadline and no insert id. Its header
// asyncmonolith-repeats has the message id of the consumed one.
//
// If one of the messages is no longer kept, Repeat changes nothing and returns [ErrNotFound]. If a
// payload was not kept, it changes nothing and returns [ErrPayloadNotKept]. It accepts 1 to 500
// ids.
func (c *Client) Repeat(ctx context.Context, db bus.Handle, ids ...int64) (repeated []uuid.UUID, err error) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) < 1 || len(ids) > adminBatch {
		return nil, fmt.Errorf("admin: repeat: %d ids: %w: 1 to %d are allowed", len(ids), bus.ErrInvalidOption, adminBatch)
	}
	err = c.stores.Through(ctx, db, errNotMade, func(st *store.Store, db bun.IDB) error {
		var payloadTypes []string
		err := txn.InTx(ctx, db, func(tx bun.Tx) error {
			rows, err := st.Consumed.LockForRepeat(ctx, tx, ids)
			if err == nil {
				payloadTypes, err = repeatable(rows, ids)
			}
			if err == nil {
				repeated, err = st.Consumed.Repeat(ctx, tx, rows, func() uuid.UUID { return uuid.Must(uuid.NewV7()) })
			}
			return err
		})
		if err == nil {
			txn.AnnounceMessages(ctx, db, c.registry, payloadTypes)
		}
		return err
	})
	if err != nil {
		return nil, dberr.Wrap(err, "admin: repeat")
	}
	return repeated, nil
}

func (c *Client) change(ctx context.Context, h bus.Handle, what string, pending store.PendingChange, ids []int64) (Result, error) {
	total, err := store.Counted(ctx, c.stores, h, errNotMade, func(st *store.Store, db bun.IDB, total *Result) error {
		for part := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), adminBatch) {
			changed, err := st.Pending.Change(ctx, db, part, pending)
			if err != nil {
				return err
			}
			total.Changed += len(changed.IDs)
			total.Running = append(total.Running, changed.Held...)
			total.Missing = append(total.Missing, changed.Missing...)
			if !pending.Cancel {
				txn.AnnounceMessages(ctx, db, c.registry, changed.PayloadTypes)
			}
		}
		return nil
	})
	return total, dberr.Wrap(err, "admin: %s", what)
}

// StopResult is the outcome of [Client.Stop].
type StopResult string

// The outcomes of [Client.Stop].
const (
	// StopCancelled: the message is deleted without having succeeded. It did not run, or its
	// consumer returned an error after its context was cancelled.
	StopCancelled StopResult = store.StopCancelled
	// StopTooLate: the stop did not change the outcome of the run. The message succeeded or was
	// poisoned, or is pending again after a failure or snooze.
	StopTooLate StopResult = store.StopTooLate
)

const (
	// stopLook is the interval between checks for an answer.
	stopLook = 100 * time.Millisecond
	// stopAnswer is how long to wait for an answer once the message is gone.
	stopAnswer = 5 * time.Second
)

// Stop deletes a message as [Client.Cancel] does. If a process holds it, Stop asks that process to
// end the run, which cancels the consumer's context with bus.ErrCancelled. Stop waits for the
// outcome until ctx ends, and then returns the context's error. The request stays, and the process
// may still act on it. A process checks for requests with each poll, once a second by default. A
// consumer that ignores its context runs on.
//
// Stopping one message of a running batch ends the whole call. The other messages run again, with
// no attempt counted. Stop returns [ErrNotFound] when no pending message has the id.
func (c *Client) Stop(ctx context.Context, db *bun.DB, id int64) (StopResult, error) {
	st, _, err := c.stores.Of(db, errNotMade)
	if err != nil {
		return "", dberr.Wrap(err, "admin: stop %d", id)
	}
	stopped, err := c.stop(ctx, st, db, id)
	return stopped, dberr.Wrap(err, "admin: stop %d", id)
}

func (c *Client) stop(ctx context.Context, st *store.Store, db *bun.DB, id int64) (StopResult, error) {
	asked := ""
	var gone time.Time // when the message was first seen missing
	for {
		changed, err := st.Pending.Change(ctx, db, []int64{id}, store.PendingChange{Cancel: true})
		switch {
		case err != nil:
			return "", err
		case len(changed.IDs) > 0:
			return StopCancelled, st.Operations.Stopped(ctx, db, id)
		case len(changed.Missing) > 0 && asked == "":
			return "", ErrNotFound
		}
		request, _, err := st.Operations.StopAnswer(ctx, db, id)
		if err != nil {
			return "", err
		}
		if asked != "" && request.Outcome != "" {
			return StopResult(request.Outcome), nil
		}
		if len(changed.Missing) > 0 {
			gone = cmp.Or(gone, time.Now())
			if time.Since(gone) > stopAnswer { // no answer will come any more
				return StopTooLate, nil
			}
		} else if asked, err = c.askToStop(ctx, st, db, id, request.Owner, asked); err != nil {
			return "", err
		}
		if !outage.Pause(ctx, stopLook) {
			return "", fmt.Errorf("no answer yet from owner %s: %w", asked, context.Cause(ctx))
		}
	}
}

// askToStop asks the process that holds the message now, unless the request names it already, and
// returns its owner id.
func (c *Client) askToStop(ctx context.Context, st *store.Store, db *bun.DB, id int64, requested, asked string) (string, error) {
	owner, _, err := st.Operations.Holder(ctx, db, id)
	if err != nil || owner == "" || asked != "" && owner == requested {
		return asked, err
	}
	return owner, st.Operations.AskToStop(ctx, db, id, owner)
}
