package handles_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
)

// BenchmarkProduceInATransaction produces one message after the other in a transaction that stays open.
func BenchmarkProduceInATransaction(b *testing.B) {
	dsn := testdb.PostgresDSN(b)
	pool := testapp.Must[*pgxpool.Pool](b)(pgxpool.New(b.Context(), dsn))
	defer pool.Close()
	db := bun.NewDB(pgxtx.Open(pool), pgdialect.New())
	defer db.Close()
	registry := testapp.Must[*bus.Registry](b)(bus.RegistryConfig{Dialect: db.Dialect()}.NewRegistry(testapp.Consumed("c")))
	producer := testapp.Must[*outbox.Producer](b)(outbox.NewProducer(registry, outbox.ProducerConfig{}))
	run := func(name string, h bus.Handle, rollback func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				testapp.OK(b, testapp.Second(producer.Produce(b.Context(), h, order{ID: "a"})))
			}
		})
		_ = rollback()
	}
	bunTx := testapp.Must[bun.Tx](b)(db.BeginTx(b.Context(), nil))
	run("bun.Tx", bunTx, bunTx.Rollback)
	sqlTx, err := db.DB.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	run("sql.Tx", sqlTx, sqlTx.Rollback)
	other, err := db.DB.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	run("another library's", foreign{other}, other.Rollback)
	pgxTx := testapp.Must[pgx.Tx](b)(pool.Begin(b.Context()))
	run("pgx.Tx", pgxtx.Of(pgxTx), func() error { return pgxTx.Rollback(b.Context()) })
}

// BenchmarkConsumeInATransaction consumes messages that each write a row, in groups that share a transaction.
func BenchmarkConsumeInATransaction(b *testing.B) {
	const insert = "INSERT INTO handles_effects (id) VALUES ("
	for name, consumer := range map[string]func(done func()) bus.Consumer{
		"bun.Tx": func(done func()) bus.Consumer {
			return outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
				defer done()
				_, err := tx.ExecContext(ctx, insert+"?)", o.ID)
				return err
			}, outbox.GroupCommit(50))
		},
		"pgx.Tx": func(done func()) bus.Consumer {
			return pgxtx.ConsumeTx("c", func(ctx context.Context, tx pgx.Tx, o order) error {
				defer done()
				_, err := tx.Exec(ctx, insert+"$1)", o.ID)
				return err
			}, outbox.GroupCommit(50))
		},
	} {
		b.Run(name, func(b *testing.B) { consumeAll(b, consumer) })
	}
}

func consumeAll(b *testing.B, consumer func(done func()) bus.Consumer) {
	config, err := pgxpool.ParseConfig(testdb.PostgresDSN(b))
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	check(err)
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	check(err)
	defer pool.Close()
	db := bun.NewDB(pgxtx.Open(pool), pgdialect.New())
	defer db.Close()
	_, err = db.ExecContext(b.Context(), "CREATE TABLE handles_effects (id text NOT NULL)")
	check(err)
	var runs sync.WaitGroup
	runs.Add(b.N)
	registry, err := bus.NewRegistry(consumer(runs.Done))
	check(err)
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	check(err)
	items := make([]outbox.Item, b.N)
	for i := range items {
		items[i].Payload = order{ID: strconv.Itoa(i)}
	}
	_, err = producer.ProduceMany(b.Context(), db, items...)
	check(err)
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{Logger: slog.New(slog.DiscardHandler)})
	check(err)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	b.ResetTimer()
	go func() { ended <- processor.Run(ctx) }()
	runs.Wait()
	b.StopTimer()
	stop()
	check(<-ended)
}
