package ops_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
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
			if got := testapp.Must[bool](t)(s.HasRunner(t.Context(), 0, "p")); got != (test.programs == 1) {
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

// TestARunnerOfOneOperationRunsNoOthers: a terminal that runs one operation is no runner for others.
func TestARunnerOfOneOperationRunsNoOthers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 9, testapp.Consumed("c"), testapp.Consumed("d"))
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
		s := operator.As(d, someone(ops.Administrator))
		var ids []int64
		for _, consumer := range []string{"c", "d"} {
			o := testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), planned(t, s, ops.Requeue, ofConsumer(consumer)).ID,
				ops.StartOptions{Canary: 3, Reason: "fixed"}))
			ids = append(ids, o.ID)
		}
		r := testapp.Must[*ops.Runner](t)(ops.NewRunner(d, nil))
		within, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan error, 1)
		go func() { done <- operator.RunOnly(within, r, ids[0]) }()
		defer func() { cancel(); testapp.OK(t, <-done) }()
		awaitState(t, s, ids[0], ops.Canary)
		testapp.Eventually(t, "the run has reported", func() bool { return a.Count("SELECT count(*) FROM message_processes") == 1 })
		if testapp.Must[bool](t)(s.HasRunner(t.Context(), 0, "")) {
			t.Error("got a runner of all operations, want none")
		}
		if own := testapp.Must[bool](t)(s.HasRunner(t.Context(), ids[0], "")); !own {
			t.Error("got no runner of its own operation")
		}
		a.Exec("UPDATE message_operations SET starts_at = "+testapp.In(db, -15*time.Second)+" WHERE id = ?", ids[1])
		viewer := operator.As(serviceOf(t, db, testapp.Must[*bus.Registry](t)(bus.NewRegistry())), someone(ops.Viewer))
		wantFinding(t, testapp.Must[[]ops.Finding](t)(viewer.Check(t.Context())), "operations", ops.Warning,
			fmt.Sprintf("operation %d (", ids[1]), "no live process runs operations")
	})
}
