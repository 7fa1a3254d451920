package eventlog_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestFxRunsAnEventLog wires a consumer that appends, a projection from a
// constructor and one that is inline.
func TestFxRunsAnEventLog(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		inline := balances2()
		inline.Name, inline.Version, inline.On = "inline", 1, inline.On[:1]
		var log *eventlog.Log
		var runner *projection.Runner
		app := fxtest.New(t, fx.Supply(db, outbox.ProcessorConfig{DefaultTimeout: 5 * time.Second}), fxmodule.Module, fxmodule.Migrate(),
			fxmodule.EventLog(eventlog.Event[opened](), eventlog.Event[moved]()),
			fxmodule.Consumers(func(log *eventlog.Log) bus.Consumer {
				return outbox.ConsumeTx("gift", func(ctx context.Context, tx bun.Tx, _ opened) error {
					_, err := log.Append(ctx, tx, "account-1", eventlog.StreamExists, moved{7})
					return err
				})
			}),
			fxmodule.Projections(func() projection.Projection { return balances() }),
			fx.Provide(func(types *eventlog.Types) (eventlog.LogConfig, error) {
				i, err := projection.NewInline(types, inline)
				return eventlog.LogConfig{Inline: []eventlog.Inline{i}}, err
			}),
			fx.Populate(&log, &runner))
		if _, err := log.Append(l.ctx, bun.Tx{}, "account-1", eventlog.AnyVersion); err == nil {
			t.Error("append without a transaction: got no error")
		}
		app.RequireStart()
		err := log.RunInTx(l.ctx, db, func(ctx context.Context, tx bun.Tx) error {
			_, err := log.Append(ctx, tx, "account-1", eventlog.NoStream, opened{"ann"})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "both projections have the gift", func() bool { return l.table("")["account-1"] == 7 && l.table("2")["account-1"] == 7 })
		app.RequireStop()
	})
}

func TestFxNamesMistakesOfTheEventLog(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	for want, option := range map[string]fx.Option{
		"Projections argument 0 (string) is not a constructor": fx.Options(fxmodule.EventLog(), fxmodule.Projections("x")),
		"an alias is empty":                             fxmodule.EventLog(eventlog.Event[moved]("")),
		"Projections need an event log":                 fxmodule.Projections(balances()),
		"is unknown":                                    fx.Options(fxmodule.EventLog(), fxmodule.Projections(balances())),
		"both fxmodule.EventLog and bus.RegistryConfig": fx.Options(fxmodule.EventLog(), fx.Supply(bus.RegistryConfig{Events: types(t)})),
	} {
		app := fx.New(fx.NopLogger, fx.Supply(db), fxmodule.Module, option)
		if err := app.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
