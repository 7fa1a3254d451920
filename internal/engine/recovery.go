package engine

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// startGrace is how long no claims are recovered after the start, or a third of a lease if longer.
const startGrace = 2 * time.Second

// recoverer ends the claims of lost processes, whose messages then run again. Whether one of them runs alone
// or is poisoned depends on its crashes: see ClaimStore.Recover and quarantine.
type recoverer struct {
	store    *store.Store
	db       *bun.DB
	config   *ProcessorConfig
	counters *counters
	outage   *outage.Outage
	alarm    *alarm.Alarm // of the poller
	warnings *warnings
	started  time.Time // of the run
}

// mayRecover reports whether the owners of expired claims could have renewed them. They could not
// right after an outage, or after the start, which may be the end of one.
func (rc *recoverer) mayRecover() bool {
	return rc.outage.Stable() && !time.Now().Before(rc.graceEnds())
}

func (rc *recoverer) graceEnds() time.Time {
	return rc.started.Add(max(rc.config.LeaseDuration/3, startGrace))
}

// recoverClaims ends claims that have outlived their lease. Every process does so when it finds
// one; there is no leader.
func (rc *recoverer) recoverClaims(ctx context.Context) {
	found, err := ask(ctx, rc.outage, "recover", statementTimeout,
		func(ctx context.Context) (store.Recovered, error) {
			return rc.store.Claims.Recover(ctx, rc.db, maxCrashes)
		})
	if err != nil || found.Claims == 0 {
		return
	}
	if found.Poisoned > 0 {
		rc.reportKillers(ctx, found.Poisoned)
	} else {
		rc.warnings.recovered.add(found.Claims, found.Crashed)
	}
	rc.counters.recovered.Add(int64(found.Claims))
	rc.counters.crashed.Add(int64(found.Crashed))
	rc.counters.crashPoisoned.Add(int64(found.Poisoned))
	rc.alarm.By(time.Now()) // there may be more, and recovered messages are due
}

// reportKillers logs the n messages last poisoned because processes were lost while running them.
func (rc *recoverer) reportKillers(ctx context.Context, n int) {
	killers := store.PoisonFilter{Error: store.CrashReason(maxCrashes)}
	found, _ := ask(ctx, rc.outage, "read poisoned messages", statementTimeout, func(ctx context.Context) ([]store.Poisoned, error) {
		return rc.store.Poison.List(ctx, rc.db, killers, n)
	})
	for _, m := range found {
		rc.config.Logger.Error("message poisoned",
			"consumer", m.ConsumerType, "payload_type", m.PayloadType, "message_id", m.MessageID, "reason", killers.Error)
	}
}
