package ops_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
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
)

type deposited struct{ Amount int }

func (deposited) PayloadType() string { return "account.deposited" }

// TestAResetThatPanicsPausesItsOperation, rather than the process: every other one would take the operation up and die, too.
func TestAResetThatPanicsPausesItsOperation(t *testing.T) {
	t.Parallel()
	for name, reset := range map[string]func(context.Context, bun.Tx) error{
		"panics":             func(context.Context, bun.Tx) error { panic("no table") },
		"ends its goroutine": func(context.Context, bun.Tx) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				service, readers, err := balances(db, reset)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(outbox.Migrate(t.Context(), db, bus.Tables{}),
					readers.Check(t.Context())); err != nil { // which enters the projection
					t.Fatal(err)
				}
				session := operator.As(service, ops.Principal{Name: "ada", Role: ops.Administrator})
				o := testapp.Must[ops.Operation](t)(session.Operations().Plan(t.Context(), ops.Rebuild, ops.Target{Projection: "balances"}))
				testapp.Must[ops.Operation](t)(session.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "columns were added"}))
				runner := testapp.Must[*ops.Runner](t)(ops.NewRunner(service, readers))
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- runner.Run(ctx) }()
				paused := func() bool {
					found, _, err := session.Operations().List(t.Context(), admin.Page{})
					return err == nil && found[0].State == ops.Paused && strings.HasPrefix(found[0].Note, "it failed")
				}
				testapp.Eventually(t, "the operation is paused, and says why", paused)
				stop()
				if err := <-ended; err != nil {
					t.Errorf("run: %v", err)
				}
			})
		})
	}
}

// TestAnOperationOfANewerVersionIsLeftToIt: a filter field, or a kind, that this version does not know would have it change more
// than was planned.
// Promise: newer-plan
func TestAnOperationOfANewerVersionIsLeftToIt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"), testapp.Consumed("e"))
		a.ProduceMany(3)
		service := testapp.Must[*ops.Service](t)(ops.New(ops.Config{DB: db, Registry: a.Registry, UndoWindow: -1,
			Logger: slog.New(slog.DiscardHandler)}))
		session := operator.As(service, ops.Principal{Name: "ada", Role: ops.Administrator})
		plan := func(consumer, change string, args ...any) int64 {
			o := testapp.Must[ops.Operation](t)(session.Operations().Plan(t.Context(), ops.Cancel,
				ops.Target{Pending: &admin.Filter{Consumer: consumer}}))
			testapp.Must[ops.Operation](t)(session.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "of a test"}))
			a.Exec("UPDATE message_operations SET "+change+" WHERE id = ?", append(args, o.ID)...)
			return o.ID
		}
		plan("c", "target = ?", `{"pending":{"consumer":"c","tenant":"acme"}}`)
		plan("d", "target = ?", `{"pending":{"consumer":"d"},"slowly":true}`)
		plan("e", "kind = ?", "archive")
		runner := testapp.Must[*ops.Runner](t)(ops.NewRunner(service, nil))
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		if err := runner.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
		if left := len(a.Pending()); left != 9 {
			t.Errorf("got %d messages left, want all 9", left)
		}
	})
}
