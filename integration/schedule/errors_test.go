package schedule_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

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
			schedule.Filter{}, schedule.Page{})),
		scheduler.UpdatePayload(t.Context(), nil, 1, order{}),
		testapp.Second(store.Get(t.Context(), nil, 1)), store.EditAndRequeue(t.Context(), nil, 1, order{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "was not made by New") {
			t.Errorf("a zero value: got %v, want it to say how to make one", err)
		}
	}
}
