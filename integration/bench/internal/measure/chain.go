package measure

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// Chain measures what the default chain costs a message that succeeds, without
// tracing and without decoding: microseconds and allocations.
func Chain() (microseconds, allocations float64, err error) {
	chain := middleware.Default(middleware.Options{Logger: slog.New(slog.DiscardHandler)})
	handler := bus.Compose(func(context.Context, *bus.Message) error { return nil }, chain...)
	m := &bus.Message{Consumer: "count", PayloadType: contender.Signup{}.PayloadType(), Attempt: 1,
		Config: &bus.ConsumerConfig{Timeout: 10 * time.Second, MaxAttempts: 5, AttemptDelay: 10 * time.Second}}
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := handler(bus.ContextWithMessage(context.Background(), m), m); err != nil {
				b.Fatal(err)
			}
		}
	})
	if result.N == 0 {
		return 0, 0, errors.New("the benchmark of the chain failed")
	}
	return float64(result.T.Nanoseconds()) / float64(result.N) / 1000, float64(result.AllocsPerOp()), nil
}
