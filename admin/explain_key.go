package admin

import (
	"cmp"
	"context"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// explainKey checks whether another message of the key blocks this one, and explains that one by
// the same rules. The consumer may run elsewhere.
func (x *explainer) explainKey(ctx context.Context) error {
	if x.row.Lane == 0 || x.first || x.keyConcurrency() > 0 {
		return nil
	}
	names, unless := access.Names(x.consumer), ""
	if !x.known {
		names, unless = []string{x.e.Message.Consumer}, ", if its consumer keeps the order of keys"
	}
	blocked, found, err := x.store.Keys.BlockedBy(ctx, x.db, names, x.row.Lane)
	if err != nil {
		return err
	}
	if found {
		x.e.Since = blocked.Since.Time
		return x.because(KeyBlocked,
			"Message %d of key %q was poisoned at %s. The key's other messages wait until it is requeued or discarded.",
			blocked.Poisoned, blocked.OrderKey, flow.Instant(blocked.Since.Time))
	}
	place, found, err := x.store.Keys.FirstOfLane(ctx, x.db, names, x.row.Lane)
	if err != nil || !found || place.ID == x.row.ID {
		return err
	}
	if !x.known && !(store.Result{Lane: place.Lane, Rank: place.Rank}).InOrder() {
		return nil // the consumer keeps no order
	}
	first, found, err := x.store.Pending.Get(ctx, x.db, place.ID, false)
	if err != nil || !found {
		return err
	}
	before := newExplainer(x.client, x.db, x.store, first)
	before.first = true
	if err := before.explain(ctx); err != nil {
		return err
	}
	return x.because(BehindKey, "Waits for message %d of key %q%s. About that message: %s", place.ID, first.OrderKey, unless, before.e.Text)
}

// explainShare checks whether the concurrency limit of the message's key is reached.
func (x *explainer) explainShare(ctx context.Context) error {
	if x.row.Lane == 0 || x.keyConcurrency() == 0 {
		return nil
	}
	source := store.Source{Names: access.Names(x.consumer), Payloads: access.PayloadTypes(x.consumer)}
	used, err := x.store.Keys.UsedOfLane(ctx, x.db, source, x.row.Lane)
	taken, crashed := used.Held, ""
	if used.Crashed > 0 && x.e.Message.Crashes == 0 {
		taken, crashed = used.Held+used.Crashed, fmt.Sprintf(", and %d that crashed keep their places.", used.Crashed)
	}
	if err != nil || taken < x.keyConcurrency() {
		return err
	}
	return x.because(KeyLimited, "%s %d messages of key %q are claimed%s Consumer %q runs no more of a key at once, in all processes "+
		"together.", x.due(), used.Held, x.row.OrderKey, cmp.Or(crashed, "."), x.consumer.Name())
}

// keyConcurrency is how many messages of a key the consumer runs at once; 0 is no limit.
func (x *explainer) keyConcurrency() int {
	config := x.consumer.Config()
	return access.KeyConcurrency(&config)
}
