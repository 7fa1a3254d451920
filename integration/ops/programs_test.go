package ops_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestContainersAreSeparatePrograms: the containers of a pod share the host name, and each has process 1.
// A container that was restarted has both of the old one.
func TestContainersAreSeparatePrograms(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		host := testapp.Must[string](t)(os.Hostname())
		part := func(id, kind, instance, manifest string, pid int) {
			state := fmt.Sprintf(`{"every": 15000000000, "instance": %q}`, instance)
			seen(a, db, id, 0, state)
			a.Exec("UPDATE message_processes SET kind = ?, host = ?, pid = ?, manifest = ? WHERE id = ?", kind, host, pid, manifest, id)
		}
		for _, test := range []struct {
			operations, projections string
			programs                int
		}{{"one", "another", 2}, {"one", "one", 1}, {"", "", 1}, {"one", "", 2}} {
			a.Exec("DELETE FROM message_processes")
			part("o", "operations", test.operations, "{}", 1)
			part("p", "projections", test.projections, `{"projections": ["p/1"]}`, 1)
			s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer))
			if got := testapp.Must[bool](t)(s.HasRunner(t.Context(), "p")); got != (test.programs == 1) {
				t.Errorf("%+v: got a runner that has the projection: %t", test, got)
			}
			alive, _ := testapp.Must[operator.Overview](t)(s.Overview(t.Context())).Programs()
			if alive != test.programs {
				t.Errorf("%+v: got %d programs", test, alive)
			}
			if listed := operator.Programs(testapp.Must[operator.Overview](t)(s.Overview(t.Context())).Processes); len(listed) != test.programs {
				t.Errorf("%+v: got %+v listed", test, listed)
			}
		}
		for _, instance := range []string{"another", ""} {
			a.Exec("DELETE FROM message_processes")
			part("c", "processor", instance, fmt.Sprintf(`{"connections": %d}`, db.Stats().MaxOpenConnections+16), os.Getpid())
			wantFinding(t, doctor(t, t.Context(), db, a.Registry), "pool", ops.OK, "Nothing in this process needs connections.")
		}
	})
}
