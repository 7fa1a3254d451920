package otel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// processorSource is what [Telemetry.Observe] samples: *outbox.Processor. Its methods must be safe
// for concurrent use.
type processorSource interface {
	// Stats returns the processor's counters and state.
	Stats() outbox.Stats
	// Queues reads the queues from the database.
	Queues(ctx context.Context) ([]admin.Queue, error)
}

const (
	defaultInterval = 15 * time.Second
	sampleTimeout   = 10 * time.Second
	// freshFor is for how many intervals a sample is shown.
	freshFor = 3
)

// Observe samples a source at once and then every interval, and exports the samples as metrics:
//
//   - *outbox.Processor: its queues, and its own counters, which are read whenever metrics are
//     collected
//   - *projection.Runner: the lag of readers, halted shards, parked events, and how many events have
//     no position
//   - *inbox.Runner: received records, their delay, whether fetching is paused, and the size of the
//     inbox
//   - *relay.Runner: its log forwarders as readers, by their name after "relay:". Forwarders that
//     publish messages are consumers of the processor.
//
// An interval of 0 means 15 s. There is no minimum, but each sample costs the database a statement.
// A sample times out after 10 s, or after an interval if that is shorter.
//
// Observe blocks until ctx ends and then returns nil. It returns an error at once for any other
// source, a negative interval, or a meter that rejects an instrument. If the source stops
// answering, its metrics disappear after three intervals; the first failure in a row goes to
// OpenTelemetry's error handler.
//
// Every process reports the same database values: aggregate with max, not sum. Observe one source
// of each type per set of tables in a process, once. With two concurrent calls on one meter, the
// later sample wins or both add up, depending on the SDK. Sequential calls are allowed.
func (t *Telemetry) Observe(ctx context.Context, source any, every time.Duration) error {
	switch {
	case t == nil || t.meter == nil:
		return errors.New("otel: observe: the telemetry was not made by NewTelemetry")
	case isNil(source):
		return errors.New("otel: observe: the source is nil")
	case every < 0:
		return fmt.Errorf("otel: observe: interval %s: 0 or more is allowed", every)
	case every == 0:
		every = defaultInterval
	}
	switch source := source.(type) {
	case processorSource:
		return t.observe(ctx, "processor", &gauges{source: source}, every)
	case *projection.Runner:
		return t.observe(ctx, "readers", &readerGauges{source: source}, every)
	case receiverSource:
		return t.observe(ctx, "receivers", &receiverGauges{source: source}, every)
	case logForwarderSource:
		return t.observe(ctx, "log forwarders", &logForwarderGauges{source: source}, every)
	}
	return fmt.Errorf("otel: observe: %T has no metrics: an *outbox.Processor, *projection.Runner, *inbox.Runner or *relay.Runner "+
		"is allowed", source)
}

// isNil tells whether a source is missing: nil, or a nil pointer.
func isNil(source any) bool {
	v := reflect.ValueOf(source)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// observed is a source with its instruments.
type observed interface {
	register(meter metric.Meter) ([]metric.Observable, error)
	// look takes a sample and returns a function that shows it.
	look(ctx context.Context) (show func(metric.Observer), err error)
}

// live is a source that also has values without a sample.
type live interface{ now(o metric.Observer) }

// sample is the last sample.
type sample struct {
	show  func(metric.Observer)
	taken time.Time
}

func (t *Telemetry) observe(ctx context.Context, what string, source observed, every time.Duration) error {
	instruments, err := source.register(t.meter)
	if err != nil {
		return fmt.Errorf("otel: observe %s: make the metrics: %w", what, err)
	}
	var last atomic.Pointer[sample]
	// Called whenever metrics are collected. It does no I/O.
	registration, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		if source, ok := source.(live); ok {
			source.now(o)
		}
		if s := last.Load(); s != nil && time.Since(s.taken) <= freshFor*every {
			s.show(o)
		}
		return nil
	}, instruments...)
	if err != nil {
		return fmt.Errorf("otel: observe %s: %w", what, err)
	}
	sampleEvery(Quiet(ctx), every, what, func(ctx context.Context) error {
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
		return fmt.Errorf("otel: observe %s: %w", what, err)
	}
	return nil
}

// sampleEvery samples at once, and then every interval, until ctx ends.
func sampleEvery(ctx context.Context, every time.Duration, what string, look func(context.Context) error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	failing := false
	for ctx.Err() == nil {
		err := look(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			otelapi.Handle(fmt.Errorf("otel: observe %s: take a sample: %w", what, err))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
