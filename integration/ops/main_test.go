package ops_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(runnerOf); dsn != "" {
		if err := runOperations(dsn); err != nil {
			log.Fatal(err)
		}
		return
	}
	if dsn := os.Getenv(resetOf); dsn != "" {
		if err := runReset(dsn); err != nil {
			log.Fatal(err)
		}
		return
	}
	testapp.Main(m)
}

type (
	order  = testapp.Order
	refund = testapp.Refund
)

// window is the time to undo in most tests.
const window = 200 * time.Millisecond

// serviceOf is a service at an application, which shows everything.
func serviceOf(t *testing.T, db *bun.DB, registry *bus.Registry, changes ...func(*ops.Config)) *ops.Service {
	t.Helper()
	c := ops.Config{DB: db, Registry: registry, Redact: ops.ShowAll, UndoWindow: window, Logger: slog.New(slog.DiscardHandler)}
	for _, change := range changes {
		change(&c)
	}
	return testapp.Must[*ops.Service](t)(ops.New(c))
}

// someone is a principal of some role.
func someone(role ops.Role) ops.Principal { return ops.Principal{Name: "ada", Role: role} }

// runner carries out operations until the test ends, or it is stopped.
func runner(t *testing.T, d *ops.Service) (stop func()) {
	t.Helper()
	r := testapp.Must[*ops.Runner](t)(ops.NewRunner(d, nil))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

// operationOf is how an operation is now, however busy the database is.
func operationOf(t *testing.T, s *operator.Session, id int64) (o ops.Operation) {
	t.Helper()
	testapp.Eventually(t, "it can be looked at", func() bool {
		var err error
		if o, err = s.Operations().Get(t.Context(), id); err != nil && !errors.Is(err, ops.ErrBusy) {
			t.Fatal(err)
		}
		return err == nil
	})
	return o
}

// awaitState waits until an operation is in a state.
func awaitState(t *testing.T, s *operator.Session, id int64, state ops.OperationState) (o ops.Operation) {
	t.Helper()
	testapp.Eventually(t, "operation is "+string(state), func() bool {
		o = operationOf(t, s, id)
		if o.State != state && !o.FinishedAt.IsZero() {
			t.Fatalf("operation is %s, want %s: %+v", o.State, state, o)
		}
		return o.State == state
	})
	return o
}
