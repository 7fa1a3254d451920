package engine

import (
	"context"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// keep writes the consumed messages of consumers that keep them, in the transaction that has removed them.
func (t *consumerTx) keep(ctx context.Context, tasks []*task) error {
	var kept []*store.Kept
	for _, task := range tasks {
		if k := task.kept(bus.OutcomeError{}); k != nil {
			kept = append(kept, k)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return t.transactor.store.Consumed.Keep(ctx, t.tx.Tx, kept)
}

const (
	forgetEvery       = 15 * time.Second // between deletes of consumed messages whose time is over
	forgetOthersEvery = time.Hour        // the same, if no consumer of the process keeps messages
	forgetBatch       = 1000             // messages in one delete
)

// forgetter deletes consumed messages whose time is over, also those of consumers that keep none any more.
type forgetter struct {
	store   *store.Store
	db      *bun.DB
	outage  *outage.Outage
	catalog *catalog
}

// loop deletes until ctx ends: every forgetEvery if a consumer keeps messages, otherwise every
// forgetOthersEvery.
func (f *forgetter) loop(ctx context.Context) {
	every := forgetOthersEvery
	if slices.ContainsFunc(f.catalog.consumers, func(c *consumer) bool { return c.settings.Keep > 0 }) {
		every = forgetEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		f.forget(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// forget deletes in parts until there are no more, or ctx ends.
func (f *forgetter) forget(ctx context.Context) {
	for n := forgetBatch; n == forgetBatch && ctx.Err() == nil; {
		var err error
		n, err = ask(ctx, f.outage, "forget consumed messages", statementTimeout,
			func(ctx context.Context) (int, error) { return f.store.Consumed.Forget(ctx, f.db, forgetBatch) })
		if err != nil { // the next time
			return
		}
	}
}
