package otel

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
)

// ReaderSource is what [Telemetry.ObserveReaders] samples: *projection.Runner. Its
// methods must be safe for concurrent use.
type ReaderSource interface {
	// Stats looks up how far the readers of the event log have come.
	Stats(ctx context.Context) ([]projection.Stats, error)
	// Unnumbered counts the events that have no position yet.
	Unnumbered(ctx context.Context) (int64, error)
}

// ObserveReaders is [Telemetry.Observe] for the readers of an event log: it shows
// how far they lag behind, what has halted or was put aside, and how many events
// are not numbered.
func (t *Telemetry) ObserveReaders(ctx context.Context, source ReaderSource, every time.Duration) error {
	switch {
	case t == nil || t.meter == nil:
		return errors.New("otel: observe readers: the telemetry was not made by New")
	case source == nil:
		return errors.New("otel: observe readers: the source is nil")
	case every < 0:
		return fmt.Errorf("otel: observe readers: interval %s: 0 or more is allowed", every)
	case every == 0:
		every = defaultInterval
	}
	s := &readerSampler{source: source, every: every}
	registration, err := s.register(t.meter)
	if err != nil {
		return fmt.Errorf("otel: observe readers: %w", err)
	}
	sampleEvery(Quiet(ctx), every, "sample the readers", s.look)
	if err := registration.Unregister(); err != nil {
		return fmt.Errorf("otel: observe readers: %w", err)
	}
	return nil
}

// readerSampler keeps the last sample of a source.
type readerSampler struct {
	source ReaderSource
	every  time.Duration
	last   atomic.Pointer[sample[readings]]

	lag, halted, parked, unnumbered metric.Int64ObservableGauge
}

type readings struct {
	readers    []projection.Stats
	unnumbered int64
}

func (s *readerSampler) register(meter metric.Meter) (metric.Registration, error) {
	var errs []error
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(system+name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return g
	}
	s.lag = gauge(".reader.lag", "{event}", "Positions of the event log that are still before a reader's slowest shard.")
	s.halted = gauge(".reader.halted", "{shard}", "Shards of a reader that wait for a person.")
	s.parked = gauge(".reader.parked", "{event}", "Events that a reader has put aside; counted up to a bound.")
	s.unnumbered = gauge(".log.unnumbered", "{event}", "Events that are committed and have no position yet; counted up to a bound.")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return meter.RegisterCallback(s.show, s.lag, s.halted, s.parked, s.unnumbered)
}

func (s *readerSampler) look(ctx context.Context) error {
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, min(s.every, sampleTimeout))
	defer cancel()
	readers, err := s.source.Stats(ctx)
	if err != nil {
		return err
	}
	unnumbered, err := s.source.Unnumbered(ctx)
	if err == nil {
		s.last.Store(&sample[readings]{readings{readers, unnumbered}, now})
	}
	return err
}

// show is called whenever metrics are collected. It does no I/O.
func (s *readerSampler) show(_ context.Context, o metric.Observer) error {
	last := s.last.Load()
	if last == nil || last.taken.Before(time.Now().Add(-freshFor*s.every)) {
		return nil
	}
	o.ObserveInt64(s.unnumbered, last.value.unnumbered)
	for _, r := range last.value.readers {
		set := metric.WithAttributeSet(attribute.NewSet(groupKey.String(r.Name), versionKey.Int(r.Version)))
		o.ObserveInt64(s.lag, r.Lag, set)
		o.ObserveInt64(s.halted, int64(r.Halted), set)
		o.ObserveInt64(s.parked, int64(r.Parked), set)
	}
	return nil
}
