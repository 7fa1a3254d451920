package otel_test

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/propagation"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// By default NewTelemetry uses the globally registered providers.
func ExampleNewTelemetry() {
	telemetry, err := amotel.NewTelemetry(amotel.TelemetryConfig{
		Propagator: propagation.TraceContext{}, // no baggage in the database
		LinkOnly:   true,
	})
	fmt.Println(telemetry != nil, err)
	// Output:
	// true <nil>
}

// Each chain has its layer. Headers link the messages of a schedule to the span that wrote it.
func ExampleTelemetry() {
	var (
		db        *bun.DB // opened by the application
		registry  *bus.Registry
		telemetry *amotel.Telemetry
	)
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{Telemetry: telemetry.Produce()})
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
		Middleware: middleware.Default(middleware.Options{Telemetry: telemetry.Consume()}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, err := schedule.NewScheduler(registry, schedule.SchedulerConfig{Headers: telemetry.Headers})
	if err != nil {
		fmt.Println(err)
		return
	}
	schedules, err := schedule.NewProcessor(db, registry, producer, schedule.ProcessorConfig{Telemetry: telemetry.Fire()})
	fmt.Println(messages, scheduler, schedules, err)
}

// Observe runs beside the processor whose queues it samples.
func ExampleTelemetry_Observe() {
	var (
		processor *outbox.Processor
		telemetry *amotel.Telemetry
	)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		if err := telemetry.Observe(ctx, processor, 15*time.Second); err != nil {
			fmt.Println(err)
		}
	}()
	fmt.Println(processor.Run(amotel.Quiet(ctx)))
}
