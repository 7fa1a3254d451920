package engine

import (
	"context"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// renewer renews the leases of claims and slots, and releases claims that only the database has.
type renewer struct {
	store    *store.Store
	db       *bun.DB
	owner    string
	config   *ProcessorConfig
	ctx      context.Context
	ledger   *ledger
	limiters *limiters
	slots    *slotKeeper
	recorder *recorder
	outage   *outage.Outage
	inFlight *inFlightClaims
	warnings *warnings
}

// loop extends all claims of this process at each signal. A claim that only the database holds
// comes from a commit whose answer was lost. It is released once it is seen twice and no claim in
// flight can be its source.
func (rn *renewer) loop(ctx context.Context, renewals <-chan struct{}) {
	var conn *renewalConn // a database with one writer needs none: renewals wait for the writer anyway
	if rn.store.RowLocks() {
		c, release := renewalConnOf(rn.db.DB)
		defer release()
		conn = c
		// The connection is taken before consumers can use up the pool.
		if err := conn.use(ctx, rn.db, func(context.Context, bun.IDB) error { return nil }); err != nil && ctx.Err() == nil {
			rn.outage.Failed("connect", err)
		}
	}
	unknownSince := make(map[int64]time.Time)
	for {
		select {
		case <-ctx.Done():
			return
		case <-renewals:
		}
		if len(rn.ledger.held()) == 0 && len(unknownSince) == 0 && len(rn.limiters.heldSlots()) == 0 &&
			!rn.inFlight.mayBeUnknown(time.Now()) {
			continue
		}
		var unknown []int64
		err := conn.use(ctx, rn.db, func(ctx context.Context, db bun.IDB) (err error) {
			unknown, err = rn.renew(ctx, db)
			return err
		})
		if err != nil {
			rn.inFlight.unknown.Store(true)
			if ctx.Err() == nil {
				rn.outage.Failed("extend", err)
			}
			continue
		}
		rn.outage.Recovered()
		rn.releaseUnknown(ctx, conn, unknownSince, unknown)
	}
}

// renew extends all claims of this process once, closes those that it has lost, and returns those
// unknown to it.
func (rn *renewer) renew(ctx context.Context, db bun.IDB) (unknown []int64, err error) {
	before, sent := rn.ledger.held(), time.Now()
	held, err := rn.store.Claims.Extend(ctx, db, rn.owner, rn.config.LeaseDuration)
	if err != nil {
		return nil, err
	}
	lost, unknown := rn.ledger.renewed(before, held, sent.Add(rn.config.LeaseDuration))
	rn.recorder.withdraw(&rn.warnings.takenAway, lost)
	return unknown, rn.slots.renew(ctx, db) // a run without a slot is cancelled elsewhere
}

// releaseUnknown ends claims that were already unknown before, and notes when the others were first
// seen.
func (rn *renewer) releaseUnknown(ctx context.Context, conn *renewalConn, seen map[int64]time.Time, unknown []int64) {
	var again []int64
	now := time.Now()
	for id := range seen {
		if !slices.Contains(unknown, id) {
			delete(seen, id)
		}
	}
	for _, id := range unknown {
		if since, ok := seen[id]; !ok {
			seen[id] = now
		} else if !rn.inFlight.startedBefore(since) {
			again = append(again, id)
		}
	}
	if len(seen) > len(again) {
		rn.inFlight.unknown.Store(true)
	}
	if len(again) == 0 {
		return
	}
	err := conn.use(ctx, rn.db, func(ctx context.Context, db bun.IDB) error { return rn.store.Claims.Disclaim(ctx, db, rn.owner, again) })
	if err != nil {
		rn.outage.Failed("disclaim", err)
		return
	}
	for _, id := range again {
		delete(seen, id)
	}
	rn.config.Logger.Warn("released claims whose commit was never confirmed", "claims", len(again))
}

// releaseRest releases claims left after settling: of runs that hang in a middleware, and of
// commits that were never confirmed. What it cannot release runs again when its lease ends.
func (rn *renewer) releaseRest(ctx context.Context) {
	if len(rn.ledger.held()) == 0 && !rn.inFlight.mayBeUnknown(time.Now()) {
		return
	}
	if rn.outage.Err() == nil { // settling may have given up on messages that are locked
		ctx = rn.ctx
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	held, err := rn.store.Claims.Extend(ctx, rn.db, rn.owner, rn.config.LeaseDuration)
	if err == nil && len(held) > 0 {
		err = rn.store.Claims.Disclaim(ctx, rn.db, rn.owner, held)
	}
	if err != nil {
		rn.outage.Failed("release", err)
	}
}
