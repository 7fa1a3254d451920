package otel

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Source is what [Telemetry.Observe] samples: *outbox.Processor. Its methods
// must be safe for concurrent use.
type Source interface {
	// Stats returns what a processor has done and is doing.
	Stats() outbox.Stats
	// Queues looks up what waits in the database.
	Queues(ctx context.Context) ([]admin.Queue, error)
}

const (
	// defaultInterval is how often a source is sampled unless told otherwise.
	defaultInterval = 15 * time.Second
	// sampleTimeout bounds one look into the database.
	sampleTimeout = 10 * time.Second
	// freshFor is for how many intervals a sample is shown.
	freshFor = 3
)

// Observe samples the source at once and then every interval, and shows the
// samples as metrics; what the process counts by itself is read whenever metrics are
// collected. An interval of 0 is 15 s; there is no least one, but each
// sample costs the database a statement. It has 10 s to answer, or an interval
// where that is shorter. Observe blocks until ctx ends and then returns nil; it
// returns an error at once for a nil source, a negative interval, and a meter that
// refuses an instrument. The metrics of a source that stops answering disappear
// after three intervals; the first failure in a row goes to OpenTelemetry's error
// handler.
//
// What is read from the database is the same for every process that looks, so
// take the maximum over processes, not the sum. Observe one processor for each
// set of tables in a process, and each once: of two calls at a time with the same
// meter the later sample wins or both add up, as the SDK has it. After a call has
// returned another may follow.
func (t *Telemetry) Observe(ctx context.Context, source Source, every time.Duration) error {
	return t.observe(ctx, "observe", source == nil, &gauges{source: source}, every)
}

// observed is a source with the instruments that show it.
type observed interface {
	register(meter metric.Meter) ([]metric.Observable, error)
	// now shows what needs no sample.
	now(o metric.Observer)
	// look takes a sample, and returns what shows it.
	look(ctx context.Context) (show func(metric.Observer), err error)
}

// sample is what was seen last.
type sample struct {
	show  func(metric.Observer)
	taken time.Time
}

func (t *Telemetry) observe(ctx context.Context, operation string, missing bool, source observed, every time.Duration) error {
	switch {
	case t == nil || t.meter == nil:
		return fmt.Errorf("otel: %s: the telemetry was not made by NewTelemetry", operation)
	case missing:
		return fmt.Errorf("otel: %s: the source is nil", operation)
	case every < 0:
		return fmt.Errorf("otel: %s: interval %s: 0 or more is allowed", operation, every)
	case every == 0:
		every = defaultInterval
	}
	instruments, err := source.register(t.meter)
	if err != nil {
		return fmt.Errorf("otel: %s: make the metrics: %w", operation, err)
	}
	var last atomic.Pointer[sample]
	// Called whenever metrics are collected. It does no I/O.
	registration, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		source.now(o)
		if s := last.Load(); s != nil && time.Since(s.taken) <= freshFor*every {
			s.show(o)
		}
		return nil
	}, instruments...)
	if err != nil {
		return fmt.Errorf("otel: %s: %w", operation, err)
	}
	sampleEvery(Quiet(ctx), every, operation, func(ctx context.Context) error {
		now := time.Now()
		ctx, cancel := context.WithTimeout(ctx, min(every, sampleTimeout))
		defer cancel()
		show, err := source.look(ctx)
		if err == nil {
			last.Store(&sample{show, now})
		}
		return err
	})
	if err := registration.Unregister(); err != nil {
		return fmt.Errorf("otel: %s: %w", operation, err)
	}
	return nil
}

// sampleEvery looks at once, and then every interval, until ctx ends.
func sampleEvery(ctx context.Context, every time.Duration, operation string, look func(context.Context) error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	failing := false
	for ctx.Err() == nil {
		err := look(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			otelapi.Handle(fmt.Errorf("otel: %s: take a sample: %w", operation, err))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
