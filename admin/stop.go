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

// Stopped is what came of [Client.Stop].
type StopResult string

// The answers of [Client.Stop].
const (
	// StopCancelled: the message is gone without having been done. It did not run, or its
	// consumer returned an error when it was asked to end.
	StopCancelled StopResult = store.StopCancelled
	// StopTooLate: the run had an outcome of its own. The message is done, or poisoned, or stays
	// since it has failed or was snoozed.
	StopTooLate StopResult = store.StopTooLate
)

const (
	// stopLook is the wait between looks for an answer.
	stopLook = 100 * time.Millisecond
	// stopAnswer is for how long an answer may come once the message is gone.
	stopAnswer = 5 * time.Second
)

// Stop deletes a message as [Client.Cancel] does, and if a process holds it, asks that process
// to end its run: the consumer's context is cancelled with bus.ErrCancelled. It waits for the
// outcome until ctx ends, and then returns the context's error; the request stays, and the
// process may still act on it. A process looks for requests with each of its polls, once a
// second by default. A consumer that ignores its context runs on.
//
// To stop one message of a batch that runs is to end the whole call; the others of it run again, with
// no attempt counted. It returns [ErrNotFound] when no message with that id is pending.
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
	var gone time.Time // since when the message is
	for {
		changed, err := st.ChangePending(ctx, db, []int64{id}, store.PendingChange{Cancel: true})
		switch {
		case err != nil:
			return "", err
		case len(changed.IDs) > 0:
			return StopCancelled, forget(ctx, st, db, id, asked)
		case len(changed.Missing) > 0 && asked == "":
			return "", ErrNotFound
		}
		request, _, err := st.StopAnswer(ctx, db, id)
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
// which.
func (a *Client) askToStop(ctx context.Context, st *store.Store, db *bun.DB, id int64, asked string) (string, error) {
	owner, _, err := st.Holder(ctx, db, id)
	if err != nil || owner == "" || owner == asked {
		return asked, err
	}
	return owner, st.AskToStop(ctx, db, id, owner)
}

// forget removes a request that was made.
func forget(ctx context.Context, st *store.Store, db *bun.DB, id int64, asked string) error {
	if asked == "" {
		return nil
	}
	return st.ForgetStop(ctx, db, id)
}
