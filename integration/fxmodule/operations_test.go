package fxmodule_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// TestFxCarriesOutOperations: what is started at the service that the module provides is done by it.
func TestFxCarriesOutOperations(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	var service *ops.Service
	var producer *outbox.Producer
	app := fxtest.New(t, fx.Supply(db), fxmodule.Module, fxmodule.Migrate(), fx.Supply(ops.Config{UndoWindow: time.Millisecond}),
		fxmodule.Consumers(bus.Consume("c", func(context.Context, order) error { return bus.Permanent(errors.New("never")) })),
		fx.Populate(&service, &producer)).RequireStart()
	defer app.RequireStop()
	ctx, s := t.Context(), operator.As(service, ops.Principal{Name: "ada", Role: ops.Administrator})
	testapp.OK(t, testapp.Second(producer.Produce(ctx, db, order{})))
	poisoned := func() int { return testapp.Must[int](t)(s.Poisoned().Count(ctx, poison.Filter{Consumer: "c"})) }
	testapp.Eventually(t, "it is poisoned", func() bool { return poisoned() == 1 })
	var o ops.Operation
	var err error
	testapp.Eventually(t, "it is older than the plan", func() bool { // SQLite counts milliseconds
		o, err = s.Operations().Plan(ctx, ops.Discard, ops.Target{Poisoned: &poison.Filter{Consumer: "c"}})
		return !errors.Is(err, ops.ErrNoMatch)
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, o.ID, ops.StartOptions{Reason: "never"}))
	testapp.Eventually(t, "it is discarded", func() bool { return poisoned() == 0 })
	if err := fx.New(fx.Supply(db), fxmodule.Module, fx.Supply(&ops.Config{}), fx.NopLogger).Err(); err == nil {
		t.Error("a pointer to a configuration: got no error")
	}
}
