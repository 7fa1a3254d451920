package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
)

// explainKey checks whether another message of the key blocks this one. The consumer may run
// elsewhere.
func (x *explainer) explainKey(ctx context.Context) error {
	if x.row.Lane == 0 || !slices.Contains([]State{Ready, Delayed, Suspect, Expired, CircuitOpen}, x.e.Reason) {
		return nil
	}
	consumer, _ := x.client.registry.Consumer(x.e.Message.Consumer)
	if config := consumer.Config(); access.KeyConcurrency(&config) > 0 && !x.elsewhere {
		return x.explainShare(ctx, consumer)
	}
	names, unless := access.Names(consumer), ""
	if x.elsewhere || x.client.operates() {
		names, unless = []string{x.e.Message.Consumer}, ", if its consumer runs those of a key in their order"
	}
	parked, found, err := x.store.Keys.ParkedBy(ctx, x.db, names, x.row.Lane)
	if err != nil {
		return err
	}
	if found {
		x.e.Reason = KeyBlocked
		x.e.Text = fmt.Sprintf(
			"Message %d of key %q was poisoned at %s, and the others of the key wait until it is requeued or discarded. poison.Store shows "+
				"why, and does so.",
			parked.Poisoned, parked.OrderKey, flow.Instant(parked.Since.Time),
		)
		return nil
	}
	id, found, err := x.store.Keys.FirstOfLane(ctx, x.db, names, x.row.Lane)
	if err != nil || !found || id == x.row.ID {
		return err
	}
	first, found, err := x.store.Pending.Get(ctx, x.db, id, false)
	if err != nil || !found {
		return err
	}
	before := newExplainer(x.client, x.db, x.store, first)
	state, text := before.reason()
	if x.elsewhere && (state == NoConsumer || state == OtherPayload) {
		_, text = before.waits()
	}
	x.e.Reason = BehindKey
	x.e.Text = fmt.Sprintf("It waits behind message %d of key %q%s, about which: %s", id, first.OrderKey, unless, text)
	return nil
}

// explainShare checks whether the concurrency limit of the message's key is reached.
func (x *explainer) explainShare(ctx context.Context, consumer bus.Consumer) error {
	config := consumer.Config()
	held, err := x.store.Keys.HeldOfLane(ctx, x.db, access.Names(consumer), x.row.Lane)
	if err != nil || x.e.Reason != Ready || held < access.KeyConcurrency(&config) {
		return err
	}
	x.e.Reason = KeyLimited
	x.e.Text = fmt.Sprintf(
		"It has been due since %s. %d messages of key %q are claimed, and consumer %q runs no more of a key at once, in all processes together.",
		flow.Instant(x.e.Message.AvailableAt), held, x.row.OrderKey, consumer.Name(),
	)
	return nil
}
