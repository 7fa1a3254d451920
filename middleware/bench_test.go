package middleware_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// BenchmarkChain is what the bare default chain costs a message.
func BenchmarkChain(b *testing.B) {
	benchmarkChain(b, slog.DiscardHandler, nil)
}

// BenchmarkChainLogged adds the line that a successful run writes.
func BenchmarkChainLogged(b *testing.B) {
	benchmarkChain(b, slog.NewJSONHandler(io.Discard, nil), nil)
}

// BenchmarkChainRetried is a run that fails and gets its backoff.
func BenchmarkChainRetried(b *testing.B) {
	benchmarkChain(b, slog.DiscardHandler, errMail)
}

func benchmarkChain(b *testing.B, logs slog.Handler, result error) {
	b.Helper()
	chain := middleware.Default(middleware.Options{Logger: slog.New(logs)})
	handler := bus.Compose(func(context.Context, *bus.Message) error { return result }, chain...)
	m := delivery(1)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_ = handler(bus.ContextWithMessage(ctx, m), m)
	}
}

// BenchmarkLogDisabled is the log layer when its level is off.
func BenchmarkLogDisabled(b *testing.B) {
	handler := middleware.Log(slog.New(slog.DiscardHandler))(returns(errMail))
	m := delivery(1)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_ = handler(ctx, m)
	}
}

// BenchmarkExponential is one wait, at an attempt that has reached the maximum.
func BenchmarkExponential(b *testing.B) {
	wait := middleware.Exponential(delivery(1).Config.AttemptDelay)
	b.ReportAllocs()
	for b.Loop() {
		wait(100)
	}
}
