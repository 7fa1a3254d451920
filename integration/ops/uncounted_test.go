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
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// uncountable is a database with poisoned messages of fast, and messages of slow, which cannot be counted in time
// once slowed.
func uncountable(t *testing.T, slowed *atomic.Bool) (a *testapp.App, db *bun.DB) {
	t.Helper()
	dsn := testdb.PostgresDSN(t)
	a, _ = testapp.NewPoisoned(t, testdb.OpenPostgres(t, dsn), 3, testapp.Consumed("fast"))
	testapp.New(t, a.DB, testapp.Consumed("slow")).ProduceMany(3)
	return a, testdb.OpenRewritten(t, dsn, func(sql string) string {
		if slowed.Load() && strings.Contains(sql, `"slow"`) && strings.Contains(sql, "consumer_messages") {
			return "SELECT pg_sleep(5)"
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
			var slowed atomic.Bool
			slowed.Store(true)
			a, db := uncountable(t, &slowed)
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
