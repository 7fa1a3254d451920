package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// workOfAnyKind takes some milliseconds, and ends in one of the ways in which a run can end.
func workOfAnyKind() error {
	<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
	switch rand.IntN(8) {
	case 0:
		return errors.New("failed")
	case 1:
		return bus.Snooze(5 * time.Millisecond)
	case 2:
		return bus.Discard(errors.New("not wanted"))
	}
	return nil
}

// keepers are consumers of each kind, all of which keep what they have consumed.
func keepers() []bus.Consumer {
	kept := func(more ...bus.ConsumerOption) []bus.ConsumerOption {
		return append(more, bus.Keep(time.Hour), bus.KeepPayload(), bus.MaxAttempts(6))
	}
	work := func(context.Context, bun.Tx, order) error { return workOfAnyKind() }
	return []bus.Consumer{
		bus.Consume("plain", func(context.Context, order) error { return workOfAnyKind() }, kept()...),
		bus.Consume("steps", func(ctx context.Context, _ order) error {
			for i := range 3 {
				if _, err := outbox.Step(ctx, fmt.Sprint(i), func(context.Context) (int, error) { return i, workOfAnyKind() }); err != nil {
					return err
				}
			}
			return nil
		}, kept()...),
		bus.ConsumeBatch("batch", func(_ context.Context, all []order) error {
			if err := workOfAnyKind(); err != nil {
				return bus.BatchError{rand.IntN(len(all)): err}
			}
			return nil
		}, kept()...),
		bus.Consume("ordered", func(context.Context, order) error { return workOfAnyKind() }, kept(bus.Ordered(bus.SkipPoisoned))...),
		outbox.ConsumeTx("tx", work, kept()...),
		outbox.ConsumeTx("group", work, kept(outbox.GroupCommit(10))...),
		bus.Consume("end", func(context.Context, refund) error { return nil }, kept()...),
	}
}

// TestClaimsThatVanishKeepEachMessageOnce: results of both the lost and the next run of a message go to the database
// together. A message is kept or poisoned, once, and each group ends.
func TestClaimsThatVanishKeepEachMessageOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, keepers()...)
		a.Start(testapp.Fast())
		a.Start(testapp.Fast())
		const groups, members = 20, 10
		for i := range groups {
			all := outbox.Group(fmt.Sprint("group ", i))
			testapp.OK(t, a.Producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
				for n := range members {
					if _, err := a.Producer.Produce(ctx, tx, order{ID: fmt.Sprint(i, n)}, all, outbox.OrderingKey(fmt.Sprint(n%4))); err != nil {
						return err
					}
				}
				return a.Producer.WhenDone(ctx, tx, all, refund{ID: "x"}, outbox.IfPoisoned(refund{ID: "x"}))
			}))
			if i%4 == 0 {
				a.Exec("DELETE FROM message_claims")
			}
		}
		testapp.Eventually(t, "all is consumed, and all groups have ended", func() bool {
			return a.Count("SELECT count(*) FROM message_groups") == 0 && a.Empty()
		})
		want := groups*members*(len(keepers())-1) + groups
		got := a.Count("SELECT (SELECT count(*) FROM consumed_messages) + (SELECT count(*) FROM poisoned_messages)")
		different := a.Count(`SELECT count(*) FROM (
			SELECT message_id, consumer_type FROM consumed_messages UNION SELECT message_id, consumer_type FROM poisoned_messages) x`)
		if got != want || different != want {
			t.Errorf("kept or poisoned: got %d messages, %d of them different, want %d", got, different, want)
		}
	})
}
