package integration_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// lines is a log that several goroutines write and a test reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestScheduleErrorsNameEverything(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := newApp(t, testdb.SQLite(t), counting("c", &n))
	_, err := a.scheduler().Schedule(t.Context(), a.db, order{}, "61 * * * * *", "europe/nowhere", schedule.Name("boot"))
	for _, want := range []string{`schedule: write schedule "boot": `, `"61"`, `"europe/nowhere"`} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("got %v, want it to say %s once", err, want)
		}
	}
}

func TestHeaderOptionWins(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := newApp(t, testdb.SQLite(t), counting("c", &n))
	s := must[*schedule.Scheduler](t)(schedule.NewScheduler(a.registry, schedule.SchedulerConfig{
		Headers: func(context.Context) map[string]string { return map[string]string{"tenant": "any", "origin": "config"} }}))
	must[int64](t)(s.ScheduleAnother(t.Context(), a.db, order{}, "@daily", "UTC", schedule.Header("tenant", "acme")))
	got := must[[]schedule.Schedule](t)(s.List(t.Context(), a.db, schedule.Filter{}))[0].Headers
	if got["tenant"] != "acme" || got["origin"] != "config" {
		t.Errorf("headers: got %v, want the option's tenant, and the configured origin", got)
	}
}

// TestSchedulesThatNobodyFiresAreReported removes the consumer of a schedule.
func TestSchedulesThatNobodyFiresAreReported(t *testing.T) {
	t.Parallel()
	for name, consumers := range map[string][]bus.Consumer{
		"other consumers": {bus.Consume("r", func(context.Context, refund) error { return nil })},
		"no consumers":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var n atomic.Int64
				before := newApp(t, db, counting("removed", &n))
				must[int64](t)(before.scheduler().Schedule(t.Context(), db, order{}, "@yearly", "UTC", schedule.Name("forgotten")))
				paused := must[int64](t)(before.scheduler().Schedule(t.Context(), db, order{}, "@yearly", "UTC", schedule.Name("paused")))
				if err := before.scheduler().Pause(t.Context(), db, paused); err != nil {
					t.Fatal(err)
				}
				a := newApp(t, db, consumers...)
				a.makeDue(2 * time.Minute)
				log := &lines{}
				a.fireSchedules(t.Context(), schedule.ProcessorConfig{Logger: log.logger(), PollInterval: time.Millisecond})
				eventually(t, "it is reported", func() bool { return strings.Contains(log.String(), "name=forgotten") })
				<-time.After(50 * time.Millisecond) // many looks
				if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "payload_type=order.placed") {
					t.Errorf("log: got %s, want one warning", got)
				}
			})
		})
	}
}

func TestAScheduleThatIsBarelyDueIsNobodysFault(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	db := testdb.SQLite(t)
	before := newApp(t, db, counting("elsewhere", &n))
	must[int64](t)(before.scheduler().ScheduleAnother(t.Context(), db, order{}, "@yearly", "UTC"))
	a := newApp(t, db)
	a.makeDue(30 * time.Second)
	found := 0
	p := must[*schedule.Processor](t)(schedule.NewProcessor(db, a.registry, a.producer, schedule.ProcessorConfig{
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

// TestMissingTablesHaveOneName asks every part of the library without tables.
func TestMissingTablesHaveOneName(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		registry := must[*bus.Registry](t)(bus.NewRegistry(bus.Consume("c", func(context.Context, order) error { return nil })))
		producer := must[*outbox.Producer](t)(outbox.NewProducer(registry, outbox.ProducerConfig{}))
		scheduler := must[*schedule.Scheduler](t)(schedule.NewScheduler(registry, schedule.SchedulerConfig{}))
		store := must[*poison.Store](t)(poison.NewStore(registry))
		messages := must[*outbox.Processor](t)(outbox.NewProcessor(db, registry, outbox.ProcessorConfig{}))
		schedules := must[*schedule.Processor](t)(schedule.NewProcessor(db, registry, producer, schedule.ProcessorConfig{}))
		ctx := t.Context()
		_, _, listErr := store.List(ctx, db, poison.Filter{}, outbox.Page{})
		for prefix, err := range map[string]error{
			"outbox: produce: ":              second(producer.Produce(ctx, db, order{})),
			"outbox: queues: ":               second(messages.Queues(ctx)),
			"outbox: check: ":                messages.Check(ctx),
			"outbox: run: ":                  messages.Run(ctx),
			"schedule: check: ":              schedules.Check(ctx),
			"schedule: run: ":                schedules.Run(ctx),
			`schedule: write schedule "n": `: second(scheduler.Schedule(ctx, db, order{}, "@daily", "UTC", schedule.Name("n"))),
			"schedule: list: ":               second(scheduler.List(ctx, db, schedule.Filter{})),
			"schedule: pause 1: ":            scheduler.Pause(ctx, db, 1),
			"schedule: run now 1: ":          scheduler.RunNow(ctx, db, 1),
			`schedule: delete by tag "t": `:  second(scheduler.DeleteByTag(ctx, db, "t")),
			"poison: list: ":                 listErr,
			"poison: count: ":                second(store.Count(ctx, db, poison.Filter{})),
			"poison: get 1: ":                second(store.Get(ctx, db, 1)),
			"poison: requeue: ":              second(store.Requeue(ctx, db, 1)),
			"poison: requeue where: ":        second(store.RequeueWhere(ctx, db, poison.Filter{}, 1)),
			"poison: edit and requeue 1: ":   store.EditAndRequeue(ctx, db, 1, order{}),
			"poison: discard: ":              second(store.Discard(ctx, db, 1)),
			"poison: purge: ":                second(store.Purge(ctx, db, 0)),
		} {
			if !errors.Is(err, dberr.ErrSchema) || !strings.HasPrefix(err.Error(), prefix) || strings.Count(err.Error(), dberr.ErrSchema.Error()) != 1 {
				t.Errorf("%s: got %v, want it, and once ErrSchema", prefix, err)
			}
		}
	})
}

// TestWritesApartFromTheTransactionAreRefused passes the handle where the
// transaction is meant, which on SQLite would wait for itself.
func TestWritesApartFromTheTransactionAreRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, store := poisonedApp(t, db, 2, counting("c", &n))
		s := a.scheduler()
		id := must[int64](t)(s.ScheduleAnother(t.Context(), db, order{}, "@daily", "UTC"))
		err := a.producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
			for what, err := range map[string]error{
				"schedule":        second(s.ScheduleAnother(ctx, db, order{}, "@daily", "UTC")),
				"pause":           s.Pause(ctx, db, id),
				"resume":          s.Resume(ctx, db, id),
				"run now":         s.RunNow(ctx, db, id),
				"update schedule": s.UpdateSchedule(ctx, db, id, "@daily", "UTC"),
				"update payload":  s.UpdatePayload(ctx, db, id, order{}),
				"delete by id":    s.DeleteByID(ctx, db, id),
				"delete by tag":   second(s.DeleteByTag(ctx, db, "t")),
				"requeue":         second(store.Requeue(ctx, db, 1)),
				"requeue where":   second(store.RequeueWhere(ctx, db, poison.Filter{}, 1)),
				"edit":            store.EditAndRequeue(ctx, db, 1, order{}),
				"edit text":       store.EditAndRequeueText(ctx, db, 1, []byte("{}")),
				"discard":         second(store.Discard(ctx, db, 1)),
				"purge":           second(store.Purge(ctx, db, 0)),
			} {
				if !errors.Is(err, txn.ErrNotInTx) {
					t.Errorf("%s: got %v, want ErrNotInTx", what, err)
				}
			}
			if _, err := s.ScheduleAnother(ctx, &tx, order{}, "@daily", "UTC"); err != nil {
				return err
			}
			_, err := store.Requeue(ctx, &tx, 1)
			return err
		})
		if err != nil || len(a.pending()) != 1 || len(must[[]schedule.Schedule](t)(s.List(t.Context(), db, schedule.Filter{}))) != 2 {
			t.Errorf("in the transaction: got %v and %d messages, want one of each", err, len(a.pending()))
		}
	})
}

func TestScheduleConstructorsReportEverything(t *testing.T) {
	t.Parallel()
	_, schedulerErr := schedule.NewScheduler(nil, schedule.SchedulerConfig{MaxPayload: -1})
	_, processorErr := schedule.NewProcessor(nil, nil, nil, schedule.ProcessorConfig{Loops: -1, PollInterval: -1, StartTimeout: -1})
	for err, wants := range map[error][]string{
		schedulerErr: {"registry is nil", "MaxPayload -1"},
		processorErr: {"handle is nil", "registry is nil", "producer is nil", "Loops -1", "PollInterval -1ns", "StartTimeout -1ns"},
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
		second(scheduler.ScheduleAnother(t.Context(), nil, order{}, "@daily", "UTC")), second(scheduler.List(t.Context(), nil, schedule.Filter{})),
		scheduler.UpdatePayload(t.Context(), nil, 1, order{}),
		second(store.Get(t.Context(), nil, 1)), store.EditAndRequeue(t.Context(), nil, 1, order{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "was not made by New") {
			t.Errorf("a zero value: got %v, want it to say how to make one", err)
		}
	}
}
