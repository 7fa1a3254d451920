package ops_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

const (
	resetOf = "ASYNCMONOLITH_TEST_RESET" // the database of a process that runs operations, and whose Reset ends it
	resetBy = 3                          // its exit code
)

// balances are the service and the projections of a program.
func balances(db *bun.DB, reset func(context.Context, bun.Tx) error) (*ops.Service, *projection.Runner, error) {
	types, err := eventlog.NewTypes(eventlog.Event[deposited]())
	if err != nil {
		return nil, nil, err
	}
	registry, err := bus.RegistryConfig{Events: types}.NewRegistry()
	if err != nil {
		return nil, nil, err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		return nil, nil, err
	}
	log, err := eventlog.NewLog(registry, producer, eventlog.LogConfig{})
	if err != nil {
		return nil, nil, err
	}
	readers, err := projection.NewRunner(db, log, projection.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, projection.Projection{
		Name: "balances", Reset: reset, On: []projection.Handler{projection.On(func(context.Context, bun.Tx, deposited) error { return nil })},
	})
	if err != nil {
		return nil, nil, err
	}
	service, err := ops.New(ops.Config{DB: db, Registry: registry, UndoWindow: -1, Logger: slog.New(slog.DiscardHandler)})
	return service, readers, err
}

// runReset is what a process does whose Reset ends it.
func runReset(dsn string) error {
	db, err := opened(dsn)
	if err != nil {
		return err
	}
	service, readers, err := balances(db, func(context.Context, bun.Tx) error { os.Exit(resetBy); return nil })
	if err != nil {
		return err
	}
	r, err := ops.NewRunner(service, readers)
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// TestAnOperationThatEndsProcessesIsPaused after three of them: else it would end every process of the fleet in turn.
// Promise: fatal-operation
func TestAnOperationThatEndsProcessesIsPaused(t *testing.T) {
	t.Parallel()
	eachShared(t, func(t *testing.T, db *bun.DB, dsn string) {
		service, readers, err := balances(db, nil)
		if err != nil {
			t.Fatal(err)
		}
		testapp.OK(t, errors.Join(outbox.Migrate(t.Context(), db, bus.Tables{}), readers.Check(t.Context())))
		s := operator.As(service, someone(ops.Administrator))
		o := planned(t, s, ops.Rebuild, ops.Target{Projection: "balances"})
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "columns were added"}))
		isPaused := func() bool { return operationOf(t, s, o.ID).State == ops.Paused }
		if died := dies(t, db, dsn, o.ID, 5, isPaused); died != 3 {
			t.Errorf("got %d processes that died, want 3", died)
		}
		if got := operationOf(t, s, o.ID); got.State != ops.Paused || got.Note != "paused after 3 processes died while they ran it" {
			t.Errorf("got %s, %q, want paused, and why", got.State, got.Note)
		}
		_ = testapp.Must[ops.Operation](t)(s.Operations().Resume(t.Context(), "it is mended", o.ID))
		if died := dies(t, db, dsn, o.ID, 1, isPaused); died != 1 {
			t.Error("the operation is not tried again after it was continued")
		}
	})
}

// dies starts one process after the other, up to most, without waiting for leases, and returns how many have died when the
// operation is paused.
func dies(t *testing.T, db *bun.DB, dsn string, id int64, most int, paused func() bool) (died int) {
	t.Helper()
	for ; died < most; died++ {
		expire := "UPDATE message_operations SET leased_until = " + testapp.In(db, -time.Second) + " WHERE id = ? AND leased_by IS NOT NULL"
		testapp.OK(t, testapp.Second(db.NewRaw(expire, id).Exec(t.Context())))
		process := exec.Command(os.Args[0])
		process.Env = append(os.Environ(), resetOf+"="+dsn)
		testapp.OK(t, process.Start())
		ended := make(chan error, 1)
		go func() { ended <- process.Wait() }()
		var err error
		over := false
		testapp.Poll(t, "the process dies, or the operation is paused", time.Minute, 10*time.Millisecond, func() bool {
			select {
			case err = <-ended:
				over = true
			default:
			}
			return over || paused()
		})
		if !over {
			_ = process.Process.Kill()
			<-ended
			return died
		}
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != resetBy {
			t.Fatalf("the process ended by itself: %v", err)
		}
	}
	return died
}
