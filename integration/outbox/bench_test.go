package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// signup is the payload of every benchmark.
type signup struct {
	UserID int64     `json:"user_id"`
	Email  string    `json:"email"`
	At     time.Time `json:"at"`
}

func (signup) PayloadType() string { return "user.signed_up" }

func newSignup(i int) signup {
	return signup{UserID: int64(i), Email: fmt.Sprintf("user%d@example.com", i), At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// quiet keeps the default chain but for the lines it would print: benchmarks
// measure the library, not the terminal.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func benchRegistry(b *testing.B, db *bun.DB, handler func(context.Context, signup) error) (*bus.Registry, *outbox.Producer) {
	b.Helper()
	registry := testapp.Must[*bus.Registry](b)(bus.NewRegistry(bus.Consume("count", handler)))
	producer := testapp.Must[*outbox.Producer](b)(outbox.NewProducer(registry, outbox.ProducerConfig{Logger: quiet()}))
	testapp.OK(b, outbox.Migrate(b.Context(), db, registry.Tables()))
	return registry, producer
}

// BenchmarkProduceOne produces one message in a transaction of the caller's, and beside it
// inserts the same row with Bun alone.
func BenchmarkProduceOne(b *testing.B) {
	type row struct {
		bun.BaseModel  `bun:"consumer_messages"`
		MessageID      uuid.UUID `bun:"type:uuid"`
		ConsumerType   string
		PayloadType    string
		Payload        string
		CreatedAt      time.Time
		AvailableAfter time.Time
	}
	insert := func(ctx context.Context, tx bun.Tx, payload signup) error {
		text, err := json.Marshal(payload)
		if err != nil {
			return err
		}
		now := time.Now()
		_, err = tx.NewInsert().Model(&row{MessageID: uuid.Must(uuid.NewV7()), ConsumerType: "count", PayloadType: payload.PayloadType(),
			Payload: string(text), CreatedAt: now, AvailableAfter: now}).Exec(ctx)
		return err
	}
	db := testdb.Postgres(b)
	_, producer := benchRegistry(b, db, func(context.Context, signup) error { return nil })
	produce := func(ctx context.Context, tx bun.Tx, payload signup) error {
		_, err := producer.Produce(ctx, tx, payload)
		return err
	}
	for name, write := range map[string]func(context.Context, bun.Tx, signup) error{"insert": insert, "produce": produce} {
		b.Run(name, func(b *testing.B) {
			tx := testapp.Must[bun.Tx](b)(db.BeginTx(b.Context(), nil))
			defer tx.Rollback() //nolint:errcheck // nothing is kept
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				testapp.OK(b, write(b.Context(), tx, newSignup(i)))
			}
		})
	}
}

// BenchmarkProduceInsertIDs produces batches with insert ids that are new, or pending.
func BenchmarkProduceInsertIDs(b *testing.B) {
	const size = 100
	for _, state := range []string{"new", "pending"} {
		b.Run(state, func(b *testing.B) {
			testdb.EachBenchmark(b, func(b *testing.B, db *bun.DB) {
				_, producer := benchRegistry(b, db, func(context.Context, signup) error { return nil })
				batch := func(n int) []outbox.Item {
					items := make([]outbox.Item, size)
					for i := range items {
						items[i] = outbox.Item{Payload: newSignup(i), Options: []outbox.Option{outbox.InsertID(fmt.Sprintf("signup:%d:%d", n, i))}}
					}
					return items
				}
				testapp.OK(b, testapp.Second(producer.ProduceMany(b.Context(), db, batch(0)...)))
				n, want := 0, size
				if state == "new" {
					want = 0
				}
				b.ReportAllocs()
				for b.Loop() {
					if state == "new" {
						n++
					}
					receipts := testapp.Must[[]outbox.Receipt](b)(producer.ProduceMany(b.Context(), db, batch(n)...))
					duplicates := 0
					for _, r := range receipts {
						duplicates += r.Duplicates
					}
					if duplicates != want {
						b.Fatalf("insert ids that were pending: got %d, want %d", duplicates, want)
					}
				}
				b.ReportMetric(size*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		})
	}
}

// BenchmarkDrain consumes a backlog with the default configuration.
func BenchmarkDrain(b *testing.B) {
	testdb.EachBenchmark(b, func(b *testing.B, db *bun.DB) {
		backlog := testapp.BenchRows(b, 100_000)
		var consumed atomic.Int64
		done := make(chan struct{})
		registry, producer := benchRegistry(b, db, func(context.Context, signup) error {
			if consumed.Add(1) == int64(backlog) {
				close(done)
			}
			return nil
		})
		for range b.N {
			b.StopTimer()
			consumed.Store(0)
			done = make(chan struct{})
			items := make([]outbox.Item, 1000)
			for i := range items {
				items[i] = outbox.Item{Payload: newSignup(i)}
			}
			for produced := 0; produced < backlog; produced += len(items) {
				testapp.OK(b, testapp.Second(producer.ProduceMany(b.Context(), db, items[:min(len(items), backlog-produced)]...)))
			}
			processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
				Logger: quiet(), Middleware: middleware.Default(middleware.Options{Logger: quiet()}),
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(b.Context())
			stopped := make(chan error, 1)
			b.StartTimer()
			go func() { stopped <- processor.Run(ctx) }()
			<-done
			b.StopTimer()
			stop()
			testapp.OK(b, <-stopped)
		}
		b.ReportMetric(float64(backlog)*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	})
}

// BenchmarkStep runs steps, and beside it inserts the same result in a transaction of its own.
func BenchmarkStep(b *testing.B) {
	result := strings.Repeat("x", 200)
	testdb.EachBenchmark(b, func(b *testing.B, db *bun.DB) {
		var each func(ctx context.Context) error
		registry, producer := benchRegistry(b, db, func(ctx context.Context, _ signup) error { return each(ctx) })
		processor := testapp.Must[*outbox.Processor](b)(outbox.NewProcessor(db, registry, outbox.ProcessorConfig{Logger: quiet()}))
		run := func(b *testing.B, n int, once func(ctx context.Context, i int) error) {
			each = func(ctx context.Context) error {
				for i := range n {
					if err := once(ctx, i); err != nil {
						return err
					}
				}
				return nil
			}
			testapp.OK(b, testapp.Second(producer.Produce(b.Context(), db, newSignup(1))))
			testapp.OK(b, testapp.Second(processor.ProcessNext(b.Context())))
		}
		b.Run("step", func(b *testing.B) {
			for b.Loop() {
				run(b, 10, func(ctx context.Context, i int) error {
					return testapp.Second(outbox.Step(ctx, fmt.Sprint(i), func(context.Context) (string, error) { return result, nil }))
				})
			}
		})
		b.Run("insert", func(b *testing.B) {
			testapp.OK(b, testapp.Second(db.ExecContext(b.Context(), "CREATE TABLE results (n int, result text)")))
			for b.Loop() {
				run(b, 10, func(ctx context.Context, i int) error {
					return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
						return testapp.Second(tx.ExecContext(ctx, "INSERT INTO results VALUES (?, ?)", i, result))
					})
				})
			}
		})
	})
}
