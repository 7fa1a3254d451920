package ops_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// paid is a payload of which nothing is shown.
type paid struct{ Card string }

func (paid) PayloadType() string { return "card.paid" }

// withoutCards hides by the payload type.
func withoutCards(c *ops.Config) {
	c.Redact = func(_ context.Context, c ops.Content) ops.Content {
		if strings.HasPrefix(c.PayloadType, "card.") {
			c.Payload, c.Headers, c.Errors = nil, nil, nil
		}
		return c
	}
}

// withCards has messages of two types, pending, kept and poisoned, with the same secret.
func withCards(t *testing.T, db *bun.DB) *testapp.App {
	t.Helper()
	refuse, wait := errors.New("refused "+secret), bus.AttemptDelay(time.Hour)
	a := testapp.New(t, db,
		bus.Consume("charge", func(context.Context, paid) error { return bus.Permanent(refuse) }),
		bus.Consume("charge-later", func(context.Context, paid) error { return refuse }, wait),
		bus.Consume("charged", func(context.Context, paid) error { return nil }, bus.Keep(time.Hour)),
		bus.Consume("ship", func(context.Context, order) error { return bus.Permanent(refuse) }),
		bus.Consume("ship-later", func(context.Context, order) error { return refuse }, wait),
		bus.Consume("shipped", func(context.Context, order) error { return nil }, bus.Keep(time.Hour)))
	a.Produce(order{ID: "1"}, outbox.Header("token", secret))
	p := a.Start(testapp.Fast())
	ended := func(n int) {
		t.Helper()
		testapp.Eventually(t, "one is poisoned, one is kept, and one has failed", func() bool {
			return len(a.Poisoned()) == n && a.Count("SELECT count(*) FROM consumer_messages WHERE attempts = 1") == n &&
				a.Count("SELECT count(*) FROM consumed_messages") == n
		})
	}
	ended(1)
	a.Produce(paid{Card: secret}, outbox.Header("token", secret))
	ended(2)
	p.MustStop()
	return a
}

// TestHiddenByPayloadType: contents that are hidden by their payload type are neither shown where only the consumer is
// known, nor found among others.
func TestHiddenByPayloadType(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, ctx := withCards(t, db), t.Context()
		s := operator.As(serviceOf(t, db, a.Registry, withoutCards), someone(ops.Administrator))
		found, _, err := s.Messages().Find(ctx, admin.Search{Header: "token", Value: secret}, admin.Cursor{})
		if err != nil || len(found) != 1 || found[0].Consumer != "ship-later" {
			t.Errorf("find: got %+v, error %v, want that of ship-later only", found, err)
		}
		kept, next, err := s.Consumed().List(ctx, admin.ConsumedFilter{Header: "token", Value: secret}, admin.Page{Size: 1})
		if err != nil || len(kept) != 1 || kept[0].Consumer != "shipped" || next != nil {
			t.Errorf("consumed: got %+v, %+v, error %v, want that of shipped only", kept, next, err)
		}
		_, _, err = s.Consumed().List(ctx, admin.ConsumedFilter{Header: "token", Value: secret, PayloadType: "card.paid"}, admin.Page{})
		if !errors.Is(err, ops.ErrRedacted) {
			t.Errorf("consumed of the type: got error %v, want ErrRedacted", err)
		}
		for _, text := range []string{secret, "another"} {
			for what, err := range searched(ctx, s, poison.Filter{Error: text}) {
				if !errors.Is(err, ops.ErrRedacted) {
					t.Errorf("%s of %q: got error %v, want ErrRedacted whether it matches or not", what, text, err)
				}
			}
		}
		for _, filter := range []poison.Filter{
			{Error: secret, Consumer: "ship"}, {Error: secret, PayloadType: order{}.PayloadType()}, {Error: secret, MessageID: kept[0].MessageID},
		} {
			for what, err := range searched(ctx, s, filter) {
				if err != nil {
					t.Errorf("%s by %+v: got error %v, want what is shown found", what, filter, err)
				}
			}
		}
	})
}

// searched searches poisoned messages in all ways.
func searched(ctx context.Context, s *operator.Session, filter poison.Filter) map[string]error {
	return map[string]error{
		"list":    testapp.Third(s.Poisoned().List(ctx, filter, admin.Page{})),
		"count":   testapp.Second(s.Poisoned().Count(ctx, filter)),
		"preview": testapp.Second(s.Operations().Preview(ctx, ops.Requeue, ops.Target{Poisoned: &filter})),
		"plan":    testapp.Second(s.Operations().Plan(ctx, ops.Requeue, ops.Target{Poisoned: &filter})),
		"export":  testapp.Second(s.Poisoned().Export(ctx, "why", filter, func(operator.PoisonedMessage) error { return nil })),
	}
}

// TestTextsHiddenByPayloadType: error texts are hidden by the type of their consumer, or of an operation's messages.
func TestTextsHiddenByPayloadType(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := withCards(t, db)
		a.Exec("DELETE FROM poisoned_messages WHERE consumer_type = 'ship'")
		a.Exec("DELETE FROM consumer_messages WHERE consumer_type = 'ship-later'")
		a.Exec("DELETE FROM consumed_messages WHERE consumer_type = 'shipped'")
		a.Exec("DELETE FROM message_failures WHERE consumer_type LIKE 'ship%'")
		s := operator.As(serviceOf(t, db, a.Registry, withoutCards), someone(ops.Administrator))
		planned(t, s, ops.Requeue, ops.Target{Poisoned: new(poison.Filter)})
		a.Exec("UPDATE message_operations SET state = 'paused', note = ?", "failed 10 times in a row; error: "+secret)
		if shown := everything(t, s); strings.Contains(shown, secret) || !strings.Contains(shown, "failed 10 times in a row") {
			t.Errorf("got the secret, or nothing at all:\n%s", shown)
		}
	})
}
