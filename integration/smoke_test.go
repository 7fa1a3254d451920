package integration_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

type ping struct{ N int }

func (ping) PayloadType() string { return "ping" }

func TestSmoke(t *testing.T) {
	slog.SetLogLoggerLevel(slog.LevelWarn)
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n, k atomic.Int64
		reg, err := bus.NewRegistry(
			bus.Consume("a", func(context.Context, ping) error { n.Add(1); return nil }),
			outbox.ConsumeTx("b", func(ctx context.Context, tx bun.Tx, p ping) error { k.Add(1); return nil }, bus.Timeout(time.Second)),
		)
		if err != nil {
			t.Fatal(err)
		}
		if err := outbox.Migrate(t.Context(), db, reg.Tables()); err != nil {
			t.Fatal(err)
		}
		p, err := outbox.NewProducer(reg, outbox.ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		proc, err := outbox.NewProcessor(db, reg, outbox.ProcessorConfig{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- proc.Run(ctx) }()
		for i := range 5 {
			rec, err := p.Produce(ctx, db, ping{i}, outbox.InsertID("x"), outbox.Header("a", "b"))
			t.Log(rec, err)
		}
		start := time.Now()
		for range 1000 {
			if _, err := p.Produce(ctx, db, ping{1}); err != nil {
				t.Fatal(err)
			}
		}
		t.Log("produced", time.Since(start))
		deadline := time.Now().Add(10 * time.Second)
		for n.Load() < 1001 || k.Load() < 1001 {
			if time.Now().After(deadline) {
				t.Fatal(n.Load(), k.Load(), proc.Health())
			}
			time.Sleep(time.Millisecond)
		}
		t.Log("consumed", time.Since(start))
		cancel()
		t.Log(<-done)
	})
}
