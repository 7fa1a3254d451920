package otel

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Source is what [Telemetry.Observe] samples: *outbox.Processor. Its methods
// must be safe for concurrent use.
type Source interface {
	// Stats tells what a processor has done and is doing.
	Stats() outbox.Stats
	// Queues looks up what waits in the database.
	Queues(ctx context.Context) ([]outbox.Queue, error)
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
// samples as metrics. An interval of 0 is 15 s; there is no least one, but each
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
	switch {
	case t == nil || t.meter == nil:
		return errors.New("otel: observe: the telemetry was not made by New")
	case source == nil:
		return errors.New("otel: observe: the source is nil")
	case every < 0:
		return fmt.Errorf("otel: observe: interval %s: 0 or more is allowed", every)
	case every == 0:
		every = defaultInterval
	}
	g, err := newGauges(t.meter)
	if err != nil {
		return fmt.Errorf("otel: observe: make the metrics: %w", err)
	}
	s := &sampler{source: source, every: every, gauges: g}
	registration, err := t.meter.RegisterCallback(s.show, g.all...)
	if err != nil {
		return fmt.Errorf("otel: observe: %w", err)
	}
	sampleEvery(Quiet(ctx), every, "sample the queues", s.look)
	if err := registration.Unregister(); err != nil {
		return fmt.Errorf("otel: observe: %w", err)
	}
	return nil
}

// sampler keeps the last samples of a source.
type sampler struct {
	source Source
	every  time.Duration
	gauges *gauges
	stats  atomic.Pointer[sample[outbox.Stats]]
	queues atomic.Pointer[sample[[]outbox.Queue]]
}

type sample[T any] struct {
	value T
	taken time.Time
}

// sampleEvery looks at once, and then every interval, until ctx ends.
func sampleEvery(ctx context.Context, every time.Duration, operation string, look func(context.Context) error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	failing := false
	for ctx.Err() == nil {
		err := look(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			otelapi.Handle(fmt.Errorf("otel: %s: %w", operation, err))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (s *sampler) look(ctx context.Context) error {
	now := time.Now()
	s.stats.Store(&sample[outbox.Stats]{s.source.Stats(), now})
	ctx, cancel := context.WithTimeout(ctx, min(s.every, sampleTimeout))
	defer cancel()
	queues, err := s.source.Queues(ctx)
	if err == nil {
		s.queues.Store(&sample[[]outbox.Queue]{queues, now})
	}
	return err
}

// show is called whenever metrics are collected. It does no I/O.
func (s *sampler) show(_ context.Context, o metric.Observer) error {
	oldest := time.Now().Add(-freshFor * s.every)
	if stats := s.stats.Load(); stats != nil && !stats.taken.Before(oldest) {
		s.gauges.showStats(o, stats.value)
	}
	if queues := s.queues.Load(); queues != nil && !queues.taken.Before(oldest) {
		for _, q := range queues.value {
			s.gauges.showQueue(o, q)
		}
	}
	return nil
}
