package engine

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// breakerEvery is how often a process compares its circuit breakers with those of the others.
const breakerEvery = time.Second

// breakerSync opens and closes circuit breakers together with the other processes.
type breakerSync struct {
	store      *store.Store
	db         *bun.DB
	config     *ProcessorConfig
	outage     *outage.Outage
	dispatcher *dispatcher
	reports    *heartbeat.Reporter // shows each change soon; nil if there are no reports
}

// loop syncs until ctx ends.
func (bs *breakerSync) loop(ctx context.Context) {
	all := bs.dispatcher.catalog.breakers()
	if len(all) == 0 {
		return
	}
	ticker := time.NewTicker(breakerEvery)
	defer ticker.Stop()
	for {
		bs.sync(ctx, all)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sync writes this process's counts and applies the shared state of all circuit breakers.
func (bs *breakerSync) sync(ctx context.Context, all map[string]*breaker) {
	names := make([]string, 0, len(all))
	for name, b := range all {
		names = append(names, name)
		done, failed, over := b.take(time.Now())
		_, err := ask(ctx, bs.outage, "count runs", statementTimeout, func(ctx context.Context) (struct{}, error) {
			switch {
			case over:
				return struct{}{}, bs.store.Flow.CloseBreaker(ctx, bs.db, name)
			case done+failed > 0:
				_, err := bs.store.Flow.CountRuns(ctx, bs.db, name, b.config, done, failed)
				return struct{}{}, err
			}
			return struct{}{}, nil
		})
		switch {
		case err != nil: // continue with the others
			b.keep(over)
		case over:
			bs.closed(b.consumer)
		}
	}
	rows, err := ask(ctx, bs.outage, "read circuit breakers", statementTimeout,
		func(ctx context.Context) ([]store.Breaker, error) { return bs.store.Flow.Breakers(ctx, bs.db, names) })
	if err != nil {
		return
	}
	stored := make(map[string]store.Breaker)
	for _, row := range rows {
		stored[row.Name] = row
	}
	for name, b := range all {
		bs.apply(ctx, b, stored[name]) // one without a row is closed
	}
	// What an open breaker keeps from claiming returns nothing by itself until it closes.
	if unused := bs.dispatcher.takeUnused(bs.dispatcher.heldByCircuitLocked); len(unused) > 0 {
		_, _ = ask(ctx, bs.outage, "return to rates", statementTimeout,
			func(ctx context.Context) (struct{}, error) {
				return struct{}{}, returnAll(ctx, bs.store, bs.db, unused)
			})
	}
}

func (bs *breakerSync) closed(consumer string) {
	bs.config.Logger.Info("circuit breaker closed", "consumer", consumer)
	bs.reports.Soon()
}

// apply applies the state of a circuit breaker. It takes the right to probe if there is a message
// to probe with.
func (bs *breakerSync) apply(ctx context.Context, b *breaker, row store.Breaker) {
	isOpen := func() bool { _, _, open := b.Tripped(); return open }
	before := isOpen()
	b.apply(row, time.Now())
	switch after := isOpen(); {
	case after && !before:
		open := flow.NewOpenBreaker(row)
		bs.config.Logger.Warn("circuit breaker opened, one message at a time probes",
			"consumer", b.consumer, "failed", open.Failed, "runs", open.Runs, "next_probe_at", open.NextProbeAt)
		bs.reports.Soon()
	case before && !after:
		bs.closed(b.consumer)
	case after && b.takeMissed():
		bs.config.Logger.Warn("circuit breaker stays open: the probe failed", "consumer", b.consumer, "next_probe_at", row.OpenUntil.Time)
		bs.reports.Soon()
	}
	switch {
	case !row.Due(b.config):
		return
	case !bs.dispatcher.couldProbe(b.consumer):
		if row.Idle() {
			_, _ = ask(ctx, bs.outage, "keep a circuit breaker open", statementTimeout,
				func(ctx context.Context) (struct{}, error) {
					return struct{}{}, bs.store.Flow.KeepBreaker(ctx, bs.db, row)
				})
		}
		return
	}
	won, err := ask(ctx, bs.outage, "take a probe", statementTimeout,
		func(ctx context.Context) (bool, error) { return bs.store.Flow.TakeProbe(ctx, bs.db, row, b.config) })
	if err == nil && won {
		b.mayProbe(row.Opened+1, time.Now())
		bs.dispatcher.wake()
	}
}
