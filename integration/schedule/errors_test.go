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

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func TestScheduleErrorsNameEverything(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := testapp.New(t, testdb.SQLite(t), testapp.Counting("c", &n))
	_, err := a.Scheduler().Upsert(t.Context(), a.DB, order{}, "61 * * * * *", "europe/nowhere", schedule.Name("boot"))
	for _, want := range []string{`schedule: write schedule "boot": `, `"61"`, `"europe/nowhere"`} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("got %v, want it to say %s once", err, want)
		}
	}
}

func TestHeaderOptionWins(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := testapp.New(t, testdb.SQLite(t), testapp.Counting("c", &n))
	s := testapp.Must[*schedule.Scheduler](t)(schedule.NewScheduler(a.Registry, schedule.SchedulerConfig{
		Headers: func(context.Context) map[string]string { return map[string]string{"tenant": "any", "origin": "config"} }}))
	testapp.Must[int64](t)(s.Create(t.Context(), a.DB, order{}, "@daily", "UTC", schedule.Header("tenant", "acme")))
	got := rowsOf(t, s, a.DB, schedule.Filter{})[0].Headers
	if got["tenant"] != "acme" || got["origin"] != "config" {
		t.Errorf("headers: got %v, want the option's tenant, and the configured origin", got)
	}
}

// TestUnhandledSchedulesAreReported removes the consumer of a schedule.
func TestUnhandledSchedulesAreReported(t *testing.T) {
	t.Parallel()
	for name, consumers := range map[string][]bus.Consumer{
		"other consumers": {bus.Consume("r", func(context.Context, refund) error { return nil })},
		"no consumers":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var n atomic.Int64
				before := testapp.New(t, db, testapp.Counting("removed", &n))
				testapp.Must[int64](t)(before.Scheduler().Upsert(t.Context(), db, order{}, "@yearly", "UTC", schedule.Name("forgotten")))
				paused := testapp.Must[int64](t)(before.Scheduler().Upsert(t.Context(), db, order{}, "@yearly", "UTC", schedule.Name("paused")))
				testapp.OK(t, before.Scheduler().Pause(t.Context(), db, paused))
				a := testapp.New(t, db, consumers...)
				makeDue(a, 2*time.Minute)
				log := &testapp.Lines{}
				fireSchedules(t.Context(), a, schedule.ProcessorConfig{Logger: log.Logger(), PollInterval: time.Millisecond})
				testapp.Eventually(t, "it is reported", func() bool { return strings.Contains(log.String(), "name=forgotten") })
				<-time.After(50 * time.Millisecond) // many looks
				if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") ||
					!strings.Contains(got, "payload_type=order.placed") {
					t.Errorf("log: got %s, want one warning", got)
				}
			})
		})
	}
}

func TestAScheduleThatIsBarelyDueIsNotReported(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	db := testdb.SQLite(t)
	before := testapp.New(t, db, testapp.Counting("elsewhere", &n))
	testapp.Must[int64](t)(before.Scheduler().Create(t.Context(), db, order{}, "@yearly", "UTC"))
	a := testapp.New(t, db)
	makeDue(a, 30*time.Second)
	found := 0
	p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, schedule.ProcessorConfig{
		Logger: slog.New(slog.NewTextHandler(writerFunc(func([]byte) { found++ }), nil))}))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	<-time.After(50 * time.Millisecond)
	stop()
	if err := <-done; err != nil || found != 0 {
		t.Errorf("got %v and %d lines, want none: another program may be about to fire it", err, found)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(line []byte) (int, error) { f(line); return len(line), nil }

func TestScheduleConstructorsReportEverything(t *testing.T) {
	t.Parallel()
	_, schedulerErr := schedule.NewScheduler(nil, schedule.SchedulerConfig{MaxPayload: -1})
	_, processorErr := schedule.NewProcessor(nil, nil, nil, schedule.ProcessorConfig{Concurrency: -1, PollInterval: -1, StartTimeout: -1})
	for err, wants := range map[error][]string{
		schedulerErr: {"registry is nil", "MaxPayload -1"},
		processorErr: {"handle is nil", "registry is nil", "producer is nil", "Concurrency -1", "PollInterval -1ns", "StartTimeout -1ns"},
	} {
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want it to name %s", err, want)
			}
		}
	}
	var scheduler schedule.Scheduler
	var store poison.Store
	for _, err := range []error{
		testapp.Second(scheduler.Create(t.Context(), nil, order{}, "@daily", "UTC")), testapp.Third(scheduler.List(t.Context(), nil,
			schedule.Filter{}, admin.Page{})),
		scheduler.UpdatePayload(t.Context(), nil, 1, order{}),
		testapp.Second(store.Get(t.Context(), nil, 1)), store.EditAndRequeue(t.Context(), nil, 1, order{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "was not made by New") {
			t.Errorf("a zero value: got %v, want it to say how to make one", err)
		}
	}
}

// catchUpWith fires one schedule whose layer fails at length, and returns the log.
func catchUpWith(t *testing.T, db *bun.DB, before func(a *app)) string {
	t.Helper()
	a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return nil }))
	layered(a, func(bus.ProduceFunc) bus.ProduceFunc {
		return func(context.Context, *bus.Batch) error { return errors.New(strings.Repeat("x", 5<<20)) }
	})
	yearly(t.Context(), a, "x")
	before(a)
	log := &testapp.Lines{}
	p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer,
		schedule.ProcessorConfig{Logger: log.Logger()}))
	if n, err := p.FireDue(t.Context()); n != 1 || err != nil {
		t.Errorf("catch up: got %d and %v, want the one", n, err)
	}
	if got := log.String(); len(got) > 40<<10 || strings.Count(got, "schedule cannot fire") != 1 {
		t.Errorf("log: got %d bytes, want a line of some KB: %.300s", len(got), got)
	}
	return log.String()
}

// TestErrorsOfSchedulesAreLoggedCut has a layer fail with one of some megabytes.
func TestErrorsOfSchedulesAreLoggedCut(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) { catchUpWith(t, db, func(*app) {}) })
	// And when it its error cannot be stored either.
	log := catchUpWith(t, testdb.SQLite(t), func(a *app) {
		a.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON scheduled_messages WHEN NEW.last_error IS NOT NULL BEGIN SELECT RAISE(ABORT, 'no'); END`)
	})
	if !strings.Contains(log, "its error cannot be stored") {
		t.Errorf("log: got %.300s, want that its error cannot be stored", log)
	}
}

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

// lane is a payload with its own key.
type lane struct {
	Name string `json:"name"`
}

func (lane) PayloadType() string   { return "lane" }
func (l lane) OrderingKey() string { return l.Name }

// TestAScheduleThatCouldNotFireForLackOfAKeyIsRefused: a consumer of undecoded messages cannot read the payload's own key.
func TestAScheduleThatCouldNotFireForLackOfAKeyIsRefused(t *testing.T) {
	t.Parallel()
	raw := bus.ConsumeRaw("raw", func(context.Context, []*bus.Message) error { return nil }, []string{"lane"}, bus.Ordered(bus.BlockKey))
	a := testapp.New(t, testdb.SQLite(t), raw)
	if _, err := a.Scheduler().Create(t.Context(), a.DB, lane{"a"}, "@yearly", "UTC"); !errors.Is(err, bus.ErrNoKey) {
		t.Errorf("got %v, want ErrNoKey", err)
	}
}
