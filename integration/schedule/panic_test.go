package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// deaf is an error of which the methods panic, being a nil pointer.
type deaf struct{ cause error }

func (d *deaf) Error() string { return d.cause.Error() }
func (d *deaf) Unwrap() error { return d.cause }

// TestAChainThatPanicsDoesNotDelayOthers: what runs here has nobody above it who would recover.
func TestAChainThatPanicsDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	second := func(m *bus.Message) bool { return string(m.Payload) == `{"id":"2","n":0}` }
	panics := bus.PerMessage(func(_ context.Context, m *bus.Message) error {
		if second(m) {
			panic(errors.New("no tenant"))
		}
		return nil
	})
	cannotSay := bus.PerMessage(func(_ context.Context, m *bus.Message) error {
		if second(m) {
			return (*deaf)(nil)
		}
		return nil
	})
	for name, test := range map[string]struct {
		layer, telemetry bus.ProduceMiddleware
		says             string
	}{
		"layer":                      {panics, nil, "no tenant"},
		"telemetry":                  {nil, panics, "no tenant"},
		"an error that cannot speak": {nil, cannotSay, "deaf"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var n atomic.Int64
				a := testapp.New(t, db, testapp.Counting("c", &n))
				if test.layer != nil {
					layered(a, test.layer)
				}
				yearly(t.Context(), a, numbered(5)...)
				fireSchedules(t.Context(), a, schedule.ProcessorConfig{Logger: slog.New(slog.DiscardHandler), Telemetry: test.telemetry})
				testapp.Eventually(t, "the others fire", func() bool { return len(a.Pending()) == 4 })
				testapp.Eventually(t, fmt.Sprintf("the one that panics says %q", test.says), func() bool {
					return strings.Contains(rowsOf(t, a.Scheduler(), db, schedule.Filter{})[2].LastError, test.says)
				})
			})
		})
	}
}

// TestTelemetryThatKeepsABatchFiresNothing, and so its schedules stay where they are.
func TestTelemetryThatKeepsABatchFiresNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		yearly(t.Context(), a, "1")
		for name, result := range map[string]error{"a batch": nil, "an error": errors.New("hidden")} {
			p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, hiding{result},
				schedule.ProcessorConfig{Logger: slog.New(slog.DiscardHandler),
					Telemetry: func(next bus.ProduceFunc) bus.ProduceFunc {
						return func(ctx context.Context, b *bus.Batch) error {
							if result != nil {
								_ = next(ctx, b)
							}
							return nil
						}
					}}))
			testapp.OK(t, testapp.Second(p.FireDue(t.Context())))
			row := rowsOf(t, a.Scheduler(), db, schedule.Filter{})[0]
			if row.LastError == "" || !row.LastFire.IsZero() {
				t.Errorf("telemetry keeps %s: got error %q and last fire %s, want an error and none", name, row.LastError, row.LastFire)
			}
			makeDue(a, time.Second)
		}
	})
}

// hiding is a producer that returns an error.
type hiding struct{ err error }

func (h hiding) Send(context.Context, bun.IDB, ...*bus.Message) error { return h.err }
