package outbox_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// produceAll produces orders of one priority, with ids that tell of it.
func produceAll(a *testapp.App, n int, what string, options ...outbox.Option) {
	for i := range n {
		a.Produce(order{ID: fmt.Sprintf("%s %d", what, i)}, options...)
	}
}

// runs are the ids that were noted, by what stands before their numbers, each as often as it
// came in a row.
func (n *noted) rows() (rows []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, count := "", 0
	for _, id := range append(slices.Clone(n.ids), "end 0") {
		var what string
		var i int
		if _, err := fmt.Sscanf(id, "%s %d", &what, &i); err != nil || what == last {
			count++
			continue
		}
		if last != "" {
			rows = append(rows, fmt.Sprintf("%s x %d", last, count))
		}
		last, count = what, 1
	}
	return rows
}

// TestHigherPrioritiesComeFirst, and what has waited for longer than their head start before.
// Promise: shares
func TestHigherPrioritiesComeFirst(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var ran noted
		a := testapp.New(t, db, bus.Consume("c", ran.consume, bus.Prioritized(time.Minute)), testapp.Consumed("other"))
		produceAll(a, 5, "old")
		a.Exec("UPDATE consumer_messages SET available_after = " + testapp.In(db, -90*time.Second))
		produceAll(a, 30, "normal")
		produceAll(a, 10, "high", outbox.Priority(bus.High))
		produceAll(a, 10, "urgent", outbox.Priority(bus.Urgent))
		if n := a.Count("SELECT count(*) FROM consumer_messages WHERE priority > 0"); n != 20 {
			t.Errorf("got %d rows with a priority, want the 20 of the consumer that goes by it", n)
		}
		config := alone()
		config.BatchSize, config.Fetchers = 7, 1
		r := a.Start(config)
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		if got, want := ran.rows(), []string{"urgent x 10", "old x 5", "high x 10", "normal x 30"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// TestPrioritiesFailBeforeAnythingIsWritten where they are not allowed, or cannot be had.
func TestPrioritiesFailBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		db := testdb.SQLite(t)
		a := testapp.New(t, db, testapp.Consumed("c"))
		if _, err := a.Producer.Produce(t.Context(), db, order{}, outbox.Priority(9)); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("Produce: got %v, want %v", err, bus.ErrInvalidOption)
		}
	})
	t.Run("mariadb", func(t *testing.T) {
		maria := testdb.MariaDB(t)
		registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry(testapp.Consumed("c", bus.Prioritized(time.Minute))))
		if _, err := outbox.NewProcessor(maria, registry, outbox.ProcessorConfig{}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("NewProcessor on MariaDB: got %v, want %v", err, errors.ErrUnsupported)
		}
		on := testapp.New(t, maria, testapp.Consumed("c", bus.Prioritized(time.Minute)))
		if _, err := on.Producer.Produce(t.Context(), maria, order{}, outbox.Priority(bus.High)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Produce on MariaDB: got %v, want %v", err, errors.ErrUnsupported)
		}
		if n := len(on.Pending()); n != 0 {
			t.Errorf("got %d messages, want none", n)
		}
	})
}
