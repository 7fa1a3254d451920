package engine

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// pollQueries asks the database what is due.
type pollQueries struct {
	store     *store.Store
	db        *bun.DB
	pollState *pollState
}

// poll looks for everything there is to do now, and activates the lanes that have messages. It looks
// at the lanes of the consumers that match.
func (pq *pollQueries) poll(ctx context.Context, wants []store.Want, match func(*consumer) bool) (store.Poll, error) {
	poll, err := pq.pollParts(ctx, wants, false)
	if dberr.IsUnavailable(err) {
		return poll, err
	}
	return poll, cmp.Or(err, pq.lookAtLanes(ctx, &poll, match))
}

// mostWants is how many kinds of messages one statement looks for.
const mostWants = 200

// pollParts is a poll of some wants at a time. A failed part does not stop the others; the poll
// has no time then, since it does not speak for all wants. Without next it does not look for when
// the next message is due.
func (pq *pollQueries) pollParts(ctx context.Context, wants []store.Want, next bool) (poll store.Poll, err error) {
	look := pq.store.Claims.PollNow
	if next {
		look = pq.store.Claims.Poll
	}
	for from := 0; from == 0 || from < len(wants) && ctx.Err() == nil; from += mostWants {
		part, failed := look(ctx, pq.db, wants[from:min(from+mostWants, len(wants))])
		if failed == nil {
			poll.Add(part, from)
		}
		err = cmp.Or(err, failed)
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		poll.Now = time.Time{}
	}
	return poll, err
}

// lookAtLanes activates the lanes that have messages, and adds the crashed ones to the poll.
func (pq *pollQueries) lookAtLanes(ctx context.Context, poll *store.Poll, match func(*consumer) bool) error {
	began := time.Now()
	looks, of := pq.pollState.laneLooks(began, true, func(l *lanes) bool { return match(l.of) })
	defer func() { pq.pollState.walked(looks, of, began, time.Now()) }()
	return pq.inParts(ctx, looks, func(from, to int, states []store.LaneState) {
		pq.pollState.lookedAtLanes(of[from:to], states, poll)
	}, true)
}

// inParts looks at some lanes at a time: one statement for many would have too many parts or take
// too long. A failed part does not stop the others. It begins at a random part, so that each has
// its turn if time runs out.
func (pq *pollQueries) inParts(
	ctx context.Context, looks []store.LaneLook, found func(from, to int, states []store.LaneState), crashed bool,
) (err error) {
	const most = 50
	parts := (len(looks) + most - 1) / most
	first := rand.IntN(max(parts, 1))
	for i := 0; i < parts && ctx.Err() == nil; i++ {
		from := (first + i) % parts * most
		to := min(from+most, len(looks))
		states, failed := pq.store.Claims.PollLanes(ctx, pq.db, looks[from:to], crashed)
		if failed == nil {
			found(from, to, states)
		}
		err = cmp.Or(err, failed)
	}
	return cmp.Or(err, ctx.Err())
}

// ask runs a statement of a loop and reports an error to the outage. It does not if ctx has ended,
// or if patience was short: the caller then has another way.
func ask[T any](
	ctx context.Context, o *outage.Outage, what string, patience time.Duration, statement func(context.Context) (T, error),
) (T, error) {
	inTime, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := statement(inTime)
	short := patience < statementTimeout && inTime.Err() != nil
	if err != nil && ctx.Err() == nil && !short {
		o.Failed(what, err)
	}
	return answer, err
}
