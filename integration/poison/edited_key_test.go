package poison_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

type crateOf struct {
	Customer string `json:"customer"`
}

func (crateOf) PayloadType() string   { return "crate.of" }
func (p crateOf) OrderingKey() string { return p.Customer }

// TestAnEditedMessageHasTheKeyOfItsPayload, and runs in the order of that; a key that the producer chose stays.
func TestAnEditedMessageHasTheKeyOfItsPayload(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		keys := make(chan string, 2)
		fails := true
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, p crateOf) error {
			if fails {
				return bus.Permanent(errors.New("bad"))
			}
			m, _ := bus.MessageFromContext(ctx)
			keys <- p.Customer + " under " + m.OrderingKey
			return nil
		}, bus.Ordered(bus.SkipPoisoned), bus.Concurrency(4)))
		s := testapp.Must[*poison.Store](t)(poison.NewStore(a.Registry))
		a.Produce(crateOf{"a"})
		a.Produce(crateOf{"c"}, outbox.OrderingKey("chosen"))
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "both are poisoned", func() bool { return len(a.Poisoned()) == 2 })
		r.MustStop()
		fails = false
		all, _, err := s.List(t.Context(), db, poison.Filter{}, admin.Page{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			testapp.OK(t, s.EditAndRequeue(t.Context(), db, m.ID, crateOf{"b"}))
		}
		a.Start(testapp.Fast())
		got := []string{<-keys, <-keys}
		if slices.Sort(got); !slices.Equal(got, []string{"b under b", "b under chosen"}) {
			t.Errorf("got %q, want one message of customer b under key b, and one under the chosen key", got)
		}
	})
}
