package otel_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"

	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// source counts how often it is asked.
type source struct {
	asked atomic.Int64
	wait  bool // until the question is given up
	fails func(asked int64) bool
	span  trace.SpanContext // in which it was asked
}

func (s *source) Stats() outbox.Stats { return outbox.Stats{} }

func (s *source) Queues(ctx context.Context) ([]admin.Queue, error) {
	asked := s.asked.Add(1)
	s.span = trace.SpanContextFromContext(ctx)
	if s.wait {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.fails != nil && s.fails(asked) {
		return nil, errors.New("no connection")
	}
	return nil, nil
}

func TestObserveRefusesMistakes(t *testing.T) {
	t.Parallel()
	telemetry := newTelemetry(t, nil)
	for _, unmade := range []*amotel.Telemetry{nil, {}} {
		if err := unmade.Observe(t.Context(), &source{}, time.Second); err == nil {
			t.Error("telemetry that was not made by New: got no error, want one")
		}
		if err := unmade.Observe(t.Context(), new(projection.Runner), time.Second); err == nil {
			t.Error("readers of telemetry that was not made by New: got no error, want one")
		}
	}
	for _, missing := range []any{nil, (*source)(nil), (*projection.Runner)(nil), "a text"} {
		if err := telemetry.Observe(t.Context(), missing, time.Second); err == nil {
			t.Errorf("source %T: got no error, want one", missing)
		}
	}
	if err := telemetry.Observe(t.Context(), &source{}, -time.Second); err == nil {
		t.Error("a negative interval: got no error, want one")
	}
}

func TestObserveSamplesUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		every time.Duration
		wait  bool
		want  int64 // samples in a minute, the one at its end included
	}{
		{"every 15 s by default", 0, false, 5},
		{"as often as told", 30 * time.Second, false, 3},
		{"a source that does not answer is asked again", 30 * time.Second, true, 3},
		{"even when it takes the whole interval", time.Second, true, 61},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &source{wait: test.wait}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Millisecond)
				defer cancel()
				start := time.Now()
				if err := newTelemetry(t, nil).Observe(ctx, s, test.every); err != nil {
					t.Errorf("observe: got %v, want nil", err)
				}
				if took := time.Since(start); took != time.Minute+time.Millisecond {
					t.Errorf("returned after %s, want it to block until the context ends", took)
				}
				if got := s.asked.Load(); got != test.want {
					t.Errorf("samples: got %d, want %d", got, test.want)
				}
			})
		})
	}
}

// TestFailuresOfASourceAreReportedOnce is not parallel: it replaces the error
// handler.
func TestFailuresOfASourceAreReportedOnce(t *testing.T) {
	var told []string
	otelapi.SetErrorHandler(otelapi.ErrorHandlerFunc(func(err error) { told = append(told, err.Error()) }))
	defer otelapi.SetErrorHandler(otelapi.ErrorHandlerFunc(func(error) {}))
	telemetry := newTelemetry(t, nil)
	synctest.Test(t, func(t *testing.T) {
		s := &source{fails: func(asked int64) bool { return asked >= 2 && asked <= 4 || asked == 6 }}
		ctx, cancel := context.WithTimeout(inSpan(t, traceparent, ""), 10*time.Second)
		defer cancel()
		if err := telemetry.Observe(ctx, s, time.Second); err != nil {
			t.Errorf("observe: got %v, want nil", err)
		}
		if s.span.IsSampled() || !s.span.IsValid() {
			t.Errorf("span of the queries: got %+v, want one that is not sampled", s.span)
		}
	})
	if len(told) != 2 || !strings.Contains(told[0], "no connection") {
		t.Errorf("reports: got %q, want one for each outage", told)
	}
}

func TestObserveWithAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	s := &source{}
	if err := newTelemetry(t, nil).Observe(ctx, s, 0); err != nil || s.asked.Load() != 0 {
		t.Errorf("observe: got %v and %d samples, want neither", err, s.asked.Load())
	}
}
