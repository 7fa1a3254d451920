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

// prober asks the database what is due.
type prober struct {
	store  *store.Store
	db     *bun.DB
	probes *probes
}

// probe looks for everything there may be to do, and activates the lanes that have messages.
func (pb *prober) probe(ctx context.Context, wants []store.Want) (store.Probe, error) {
	probe, err := pb.probeParts(ctx, wants)
	if dberr.IsUnavailable(err) {
		return probe, err
	}
	return probe, cmp.Or(err, pb.lookAtLanes(ctx, &probe))
}

// mostWants is how many kinds of messages one statement looks for.
const mostWants = 200

// probeParts is a probe of some wants at a time. A failed part does not stop the others; the probe
// has no time then, since it does not speak for all wants.
func (pb *prober) probeParts(ctx context.Context, wants []store.Want) (probe store.Probe, err error) {
	for from := 0; from == 0 || from < len(wants) && ctx.Err() == nil; from += mostWants {
		part, failed := pb.store.Claims.Probe(ctx, pb.db, wants[from:min(from+mostWants, len(wants))])
		if failed == nil {
			probe.Add(part, from)
		}
		err = cmp.Or(err, failed)
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		probe.Now = time.Time{}
	}
	return probe, err
}

// lookAtLanes activates the lanes that have messages, and adds the crashed ones to the probe.
func (pb *prober) lookAtLanes(ctx context.Context, probe *store.Probe) error {
	looks, of := pb.probes.laneLooks(time.Now(), true, func(*lanes) bool { return true })
	return pb.inParts(ctx, looks, func(from, to int, states []store.LaneState) {
		pb.probes.lookedAtLanes(of[from:to], states, probe)
	}, true)
}

// inParts looks at some lanes at a time: one statement for many would have too many parts or take
// too long. A failed part does not stop the others. It begins at a random part, so that each has
// its turn if time runs out.
func (pb *prober) inParts(
	ctx context.Context, looks []store.LaneLook, found func(from, to int, states []store.LaneState), crashed bool,
) (err error) {
	const most = 50
	parts := (len(looks) + most - 1) / most
	first := rand.IntN(max(parts, 1))
	for i := 0; i < parts && ctx.Err() == nil; i++ {
		from := (first + i) % parts * most
		to := min(from+most, len(looks))
		states, failed := pb.store.Claims.ProbeLanes(ctx, pb.db, looks[from:to], crashed)
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
