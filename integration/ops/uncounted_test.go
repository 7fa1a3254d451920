package ops_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// uncountable is a database with poisoned messages of fast, and messages of slow, which cannot be counted in time
// once slowed. Where it is broken, no queue can be.
func uncountable(t *testing.T, slowed, broken *atomic.Bool) (a *testapp.App, db *bun.DB) {
	t.Helper()
	dsn := testdb.PostgresDSN(t)
	a, _ = testapp.NewPoisoned(t, testdb.OpenPostgres(t, dsn), 3, testapp.Consumed("fast"))
	testapp.New(t, a.DB, testapp.Consumed("slow")).ProduceMany(3)
	return a, testdb.OpenRewritten(t, dsn, func(sql string) string {
		if slowed.Load() && strings.Contains(sql, `"slow"`) && strings.Contains(sql, "consumer_messages") {
			return "SELECT pg_sleep(5)"
		}
		if broken.Load() && strings.Contains(sql, "paused_consumers") && strings.HasPrefix(sql, "SELECT") {
			return "SELECT 1/0"
		}
		return sql
	})
}

// TestTheDoctorGoesOnWithoutAQueue: a queue that cannot be counted in time is named, and hides nothing of the others.
func TestTheDoctorGoesOnWithoutAQueue(t *testing.T) {
	t.Parallel()
	for _, textless := range []bool{false, true} {
		t.Run(map[bool]string{false: "queues", true: "queues and failures"}[textless], func(t *testing.T) {
			t.Parallel()
			var slowed, broken atomic.Bool
			slowed.Store(true)
			a, db := uncountable(t, &slowed, &broken)
			if textless {
				a.Exec("ALTER TABLE message_failures RENAME TO elsewhere")
			}
			began := time.Now()
			all := doctor(t, t.Context(), db, testapp.Must[*bus.Registry](t)(bus.NewRegistry()))
			if took := time.Since(began); took > 11*time.Second {
				t.Errorf("took %s, want the queues counted once", took)
			}
			found := findingsOf(all, "poisoned")
			if len(found) != 2 || found[0].Subject != "fast" || found[0].Severity != ops.Critical ||
				!strings.HasPrefix(found[0].Text, "3 poisoned messages") {
				t.Errorf("poisoned: got %+v, want those of fast first", found)
			}
			for _, check := range []string{"poisoned", "blocked_keys", "circuit_breakers"} {
				found := findingsOf(all, check)
				if len(found) == 0 || found[len(found)-1].Severity != ops.Warning ||
					!strings.Contains(found[len(found)-1].Text, "the queue of slow") {
					t.Errorf("%s: got %+v, want a warning that names the queue of slow", check, found)
				}
			}
			wantFinding(t, all, "consumers", ops.Warning, "no processor has reported")
			for _, f := range all {
				if f.Text == "The check could not run." && !textless {
					t.Errorf("got %+v, want it looked at", f)
				}
			}
		})
	}
}

// TestTheAgeOfCounts: counts of earlier keep their time, however often they are shown again.
// Promise: overview
func TestTheAgeOfCounts(t *testing.T) {
	t.Parallel()
	var slowed, broken atomic.Bool
	a, db := uncountable(t, &slowed, &broken)
	s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
	before := testapp.Must[operator.Overview](t)(s.Overview(t.Context()))
	slowed.Store(true)
	for i, whole := range []bool{false, false, true, false} {
		testapp.OK(t, s.Consumers().Pause(t.Context(), "fast", "so that the overview is made anew"))
		broken.Store(whole)
		o := testapp.Must[operator.Overview](t)(s.Overview(t.Context()))
		broken.Store(false)
		at := o.From("the queue of slow")
		if len(o.Queues) != 2 || !o.At.After(before.At) || !at.Equal(before.At) || o.Missing("queues") || o.From("queues").Equal(o.At) == whole {
			t.Errorf("overview %d: got %+v at %s with %+v, want the queue of slow as of %s", i, o.Queues, o.At, o.Unseen, before.At)
		}
	}
}
