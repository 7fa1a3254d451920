package handles_test

import (
	"testing"

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
	pool, err := pgxpool.New(b.Context(), dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	db := bun.NewDB(pgxtx.Open(pool), pgdialect.New())
	defer db.Close()
	registry, err := bus.RegistryConfig{Dialect: db.Dialect()}.NewRegistry(testapp.Consumed("c"))
	if err != nil {
		b.Fatal(err)
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, h bus.Handle, rollback func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := producer.Produce(b.Context(), h, order{ID: "a"}); err != nil {
					b.Fatal(err)
				}
			}
		})
		_ = rollback()
	}
	bunTx, err := db.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
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
	pgxTx, err := pool.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	run("pgx.Tx", pgxtx.Of(pgxTx), func() error { return pgxTx.Rollback(b.Context()) })
}
