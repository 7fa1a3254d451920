package dberr_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// TestMissingTablesHaveOneName asks every part of the library without tables.
func TestMissingTablesHaveOneName(t *testing.T) {
	t.Parallel()
	testdb.EachEmpty(t, func(t *testing.T, db *bun.DB) {
		registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry(bus.Consume("c", func(context.Context, order) error { return nil })))
		producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(registry, outbox.ProducerConfig{}))
		scheduler := testapp.Must[*schedule.Scheduler](t)(schedule.NewScheduler(registry, schedule.SchedulerConfig{}))
		store := testapp.Must[*poison.Store](t)(poison.NewStore(registry))
		messages := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, registry, outbox.ProcessorConfig{}))
		schedules := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, registry, producer, schedule.ProcessorConfig{}))
		ctx := t.Context()
		_, _, listErr := store.List(ctx, db, poison.Filter{}, admin.Page{})
		for prefix, err := range map[string]error{
			"outbox: produce: ":              testapp.Second(producer.Produce(ctx, db, order{})),
			"admin: queues: ":                testapp.Second(messages.Queues(ctx)),
			"outbox: check: ":                messages.Check(ctx),
			"outbox: run: ":                  messages.Run(ctx),
			"schedule: check: ":              schedules.Check(ctx),
			"schedule: run: ":                schedules.Run(ctx),
			`schedule: write schedule "n": `: testapp.Second(scheduler.Upsert(ctx, db, order{}, "@daily", "UTC", schedule.Name("n"))),
			"schedule: list: ":               testapp.Third(scheduler.List(ctx, db, schedule.Filter{}, admin.Page{})),
			"schedule: pause 1: ":            scheduler.Pause(ctx, db, 1),
			"schedule: trigger 1: ":          scheduler.Trigger(ctx, db, 1),
			`schedule: delete by tag "t": `:  testapp.Second(scheduler.DeleteByTag(ctx, db, "t")),
			"poison: list: ":                 listErr,
			"poison: count: ":                testapp.Second(store.Count(ctx, db, poison.Filter{})),
			"poison: get 1: ":                testapp.Second(store.Get(ctx, db, 1)),
			"poison: requeue: ":              testapp.Second(store.Requeue(ctx, db, 1)),
			"poison: requeue where: ":        testapp.Second(store.RequeueWhere(ctx, db, poison.Filter{}, 1)),
			"poison: edit and requeue 1: ":   store.EditAndRequeue(ctx, db, 1, order{}),
			"poison: discard: ":              testapp.Second(store.Discard(ctx, db, 1)),
			"poison: purge: ":                testapp.Second(store.Purge(ctx, db, 0)),
		} {
			if !errors.Is(err, dberr.ErrSchema) || !strings.HasPrefix(err.Error(), prefix) ||
				strings.Count(err.Error(), dberr.ErrSchema.Error()) != 1 {
				t.Errorf("%s: got %v, want it, and once ErrSchemaOutdated", prefix, err)
			}
		}
	})
}
