package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// CacheStale is a payload.
type CacheStale struct {
	Cache string `json:"cache"`
}

func (CacheStale) PayloadType() string { return "cache.stale" }

// A schedule with a name can be written at every boot: it exists once.
func ExampleScheduler_Upsert() {
	var (
		ctx       = context.Background()
		db        *bun.DB // opened by the application; a bun.Tx does as well
		scheduler *schedule.Scheduler
	)
	id, err := scheduler.Upsert(ctx, db, CacheStale{Cache: "prices"}, "0 30 4 * * MON-FRI", "Europe/Amsterdam",
		schedule.Name("refresh-prices"), schedule.Tag("caches"))
	fmt.Println(id, err)
}

// Upsert reports all invalid values at once, before it accesses the database.
func ExampleScheduler_Upsert_errors() {
	registry, err := bus.NewRegistry(bus.Consume("refresh-cache", func(context.Context, CacheStale) error { return nil }))
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, err := schedule.NewScheduler(registry, schedule.SchedulerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var db *bun.DB
	_, err = scheduler.Upsert(context.Background(), db, CacheStale{}, "0 99 4 * * *", "Local", schedule.Name("refresh-prices"))
	fmt.Println(errors.Is(err, schedule.ErrExpression))
	fmt.Println(err)
	// Output:
	// true
	// schedule: write schedule "refresh-prices": expression or time zone cannot be used: cron: minute field "99": 0-59 is allowed
	// cron: time zone "Local": an IANA name such as "Europe/Amsterdam" or "UTC" is allowed, since Local differs from machine to machine
}

// List the schedules and fire one of them now.
func ExampleScheduler_Trigger() {
	var (
		ctx       = context.Background()
		db        *bun.DB // opened by the application
		scheduler *schedule.Scheduler
	)
	schedules, _, err := scheduler.List(ctx, db, schedule.Filter{Tag: "caches"}, admin.Page{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range schedules {
		fmt.Println(s.Name, s.Expression, s.Zone, s.NextFire, s.LastError)
		if err := scheduler.Trigger(ctx, db, s.ID); err != nil {
			fmt.Println(err)
		}
	}
}

// Run fires schedules. Each fire time makes one message, however many processors run.
func ExampleProcessor_Run() {
	var (
		db       *bun.DB // opened by the application
		registry *bus.Registry
		producer *outbox.Producer
	)
	processor, err := schedule.NewProcessor(db, registry, producer, schedule.ProcessorConfig{Misfire: schedule.Skip})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	fmt.Println(processor.Run(ctx))
}
