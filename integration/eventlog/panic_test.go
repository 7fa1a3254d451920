package eventlog_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// deaf is an error of which the methods panic, being a nil pointer.
type deaf struct{ cause error }

func (d *deaf) Error() string { return d.cause.Error() }
func (d *deaf) Unwrap() error { return d.cause }

// TestWhatPanicsIsAFailureOfAProjection, and not the end of the process: its goroutines have nobody above them who
// would recover.
func TestWhatPanicsIsAFailureOfAProjection(t *testing.T) {
	t.Parallel()
	none := func(context.Context, bun.Tx, []eventlog.RecordedEvent) error { return nil }
	upcasting, err := eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[moved](eventlog.Schema(2),
		eventlog.Upcaster(1, func(context.Context, []byte) ([]byte, error) { panic("no form") })))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		types      *eventlog.Types
		config     projection.RunnerConfig
		projection projection.Projection
		says       string
	}{
		"upcaster of a batch": {types: upcasting, projection: projection.Projection{Batch: none, Types: []string{"account.moved"}},
			says: "no form"},
		"telemetry": {says: "no meter", projection: projection.Projection{Batch: none, Types: []string{"account.moved"}},
			config: projection.RunnerConfig{Telemetry: func(bus.ProduceFunc) bus.ProduceFunc {
				return func(context.Context, *bus.Batch) error { panic(errors.New("no meter")) }
			}}},
		"telemetry that keeps a batch": {says: "has not passed a batch on",
			projection: projection.Projection{Batch: none, Types: []string{"account.moved"}},
			config: projection.RunnerConfig{Telemetry: func(bus.ProduceFunc) bus.ProduceFunc {
				return func(context.Context,
					*bus.Batch) error {
					return nil
				}
			}}},
		"an error that cannot speak": {says: "deaf", config: projection.RunnerConfig{Chain: []bus.Middleware{}},
			projection: projection.Projection{
				On: []projection.Handler{projection.On(func(context.Context, bun.Tx, moved) error { return (*deaf)(nil) })}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				newApp(t, db).append("account-1", eventlog.NoStream, moved{1}, moved{2})
				l := &ledger{setup{types: test.types}.newApp(t, db)}
				test.projection.Name, test.projection.AttemptDelay, test.config.PollInterval = "p", time.Millisecond, 20*time.Millisecond
				r, err := projection.NewRunner(db, l.log, test.config, test.projection, projection.Projection{
					Name: "other", On: []projection.Handler{projection.On(func(context.Context, bun.Tx, opened) error { return nil })}})
				if err != nil {
					t.Fatal(err)
				}
				running(t, "runner", r.Run)
				eventually(t, "the failure is written down", func() bool {
					var says string
					err := db.NewRaw("SELECT COALESCE(last_error, '') FROM event_subscriptions WHERE name = 'p'").Scan(l.ctx, &says)
					return err == nil && strings.Contains(says, test.says)
				})
			})
		})
	}
}
