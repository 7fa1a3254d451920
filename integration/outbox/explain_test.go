package outbox_test

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
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// holdUp is something that keeps a consumer, or a key, from starting messages.
type holdUp struct {
	option bus.ConsumerOption
	sets   func(a *app)
	reason admin.State
	text   string
}

// holdUps returns everything that Explain has to name, as a processor would leave it in the database or the process.
func holdUps() map[string]holdUp {
	var circuit outbox.Circuit
	later := func(a *app) string { return testapp.In(a.DB, time.Hour) }
	return map[string]holdUp{
		"breaker": {bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, Cooldown: time.Hour}), func(a *app) {
			r := a.Start(testapp.Fast())
			for _, key := range []string{"x", "y"} {
				a.Produce(order{ID: "opens it"}, outbox.OrderingKey(key))
			}
			testapp.Eventually(a.T, "it is open", func() bool {
				return a.Count("SELECT count(*) FROM message_breakers WHERE opened_at IS NOT NULL") > 0
			})
			r.MustStop()
		}, admin.CircuitBreakerOpen, "circuit open since"},
		"circuit": {outbox.WithCircuit(&circuit), func(*app) { _ = circuit.Trip(errors.New("away")) }, admin.CircuitOpen, `The circuit of consumer "c"`},
		"limit": {bus.GlobalConcurrency(1), func(a *app) {
			a.Exec("INSERT INTO message_slots (name, n, owner, leased_until) SELECT 'c', 1, 'other', " + later(a))
		}, admin.Limited, `at the limit "c" of 1`},
		"rate": {bus.RateLimit(1, time.Minute, 1), func(a *app) {
			a.Exec("INSERT INTO message_rates (name, used_to) SELECT 'c', " + later(a))
		}, admin.RateLimited, "Its consumer starts 1 in 1m0s"},
		"key rate": {bus.KeyRateLimit(1, time.Minute, 1), func(a *app) {
			a.Exec("INSERT INTO message_key_rates (name, lane, used_to) SELECT 'c', MIN(lane), " + later(a) + " FROM consumer_messages")
		}, admin.RateLimited, "Its key starts 1 in 1m0s"},
	}
}

// TestExplainGivesOneReasonForAKey: the first message of a key and the one behind it wait for the same, whether or not their last
// process was lost.
func TestExplainGivesOneReasonForAKey(t *testing.T) {
	t.Parallel()
	for name := range holdUps() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each := testdb.Each
			if name == "key rate" {
				each = testdb.EachWithEvents // MariaDB has no key rates
			}
			each(t, func(t *testing.T, db *bun.DB) {
				held := holdUps()[name]
				a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return errors.New("no") },
					held.option, bus.Ordered(bus.BlockKey), bus.MaxAttempts(100), bus.AttemptDelay(time.Hour)))
				a.Produce(order{ID: "first"}, outbox.OrderingKey("k"))
				a.Produce(order{ID: "second"}, outbox.OrderingKey("k"))
				rows := a.Pending()
				held.sets(a)
				a.Exec("UPDATE consumer_messages SET available_after = " + testapp.NowOf(db))
				for crashes, set := range []string{"crashes = 0", "crashes = 1", "crashes = 2"} {
					a.Exec("UPDATE consumer_messages SET " + set)
					first := testapp.Must[admin.Explanation](t)(a.Admin().Explain(t.Context(), db, rows[0].ID))
					second := testapp.Must[admin.Explanation](t)(a.Admin().Explain(t.Context(), db, rows[1].ID))
					if first.Reason != held.reason || !strings.Contains(first.Text, held.text) {
						t.Errorf("the first, with %d crashes: got %s: %s", crashes, first.Reason, first.Text)
					}
					if second.Reason != held.reason && second.Reason != admin.BehindKey || !strings.Contains(second.Text, held.text) {
						t.Errorf("the second, with %d crashes: got %s: %s", crashes, second.Reason, second.Text)
					}
				}
			})
		})
	}
}
