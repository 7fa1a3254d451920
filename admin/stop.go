package admin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// StopResult is the outcome of [Client.Stop].
type StopResult string

// The outcomes of [Client.Stop].
const (
	// StopCancelled: the message is deleted without having succeeded. It did not run, or its
	// consumer returned an error after its context was cancelled.
	StopCancelled StopResult = store.StopCancelled
	// StopTooLate: the run had its own outcome. The message succeeded or was poisoned, or is
	// pending after a failure or snooze.
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
func (a *Client) Stop(ctx context.Context, db *bun.DB, id int64) (StopResult, error) {
	st, _, err := a.stores.Of(db, errNotMade)
	if err != nil {
		return "", dberr.Wrap(err, "admin: stop %d", id)
	}
	stopped, err := a.stop(ctx, st, db, id)
	return stopped, dberr.Wrap(err, "admin: stop %d", id)
}

func (a *Client) stop(ctx context.Context, st *store.Store, db *bun.DB, id int64) (StopResult, error) {
	asked := ""
	var gone time.Time // when the message was first seen missing
	for {
		changed, err := st.Pending.Change(ctx, db, []int64{id}, store.PendingChange{Cancel: true})
		switch {
		case err != nil:
			return "", err
		case len(changed.IDs) > 0:
			return StopCancelled, forget(ctx, st, db, id, asked)
		case len(changed.Missing) > 0 && asked == "":
			return "", ErrNotFound
		}
		request, _, err := st.Operations.StopAnswer(ctx, db, id)
		if err != nil {
			return "", err
		}
		if asked != "" && request.Outcome != "" {
			return StopResult(request.Outcome), forget(ctx, st, db, id, asked)
		}
		if len(changed.Missing) > 0 {
			if gone = cmp.Or(gone, time.Now()); time.Since(gone) > stopAnswer { // no answer will come any more
				return StopTooLate, forget(ctx, st, db, id, asked)
			}
		} else if asked, err = a.askToStop(ctx, st, db, id, asked); err != nil {
			return "", err
		}
		if !outage.Pause(ctx, stopLook) {
			return "", fmt.Errorf("no answer yet from owner %s: %w", asked, context.Cause(ctx))
		}
	}
}

// askToStop asks the process that holds the message now, unless it was asked before, and returns
// its owner id.
func (a *Client) askToStop(ctx context.Context, st *store.Store, db *bun.DB, id int64, asked string) (string, error) {
	owner, _, err := st.Operations.Holder(ctx, db, id)
	if err != nil || owner == "" || owner == asked {
		return asked, err
	}
	return owner, st.Operations.AskToStop(ctx, db, id, owner)
}

// forget deletes the stop request, if one was made.
func forget(ctx context.Context, st *store.Store, db *bun.DB, id int64, asked string) error {
	if asked == "" {
		return nil
	}
	return st.Operations.ForgetStop(ctx, db, id)
}
