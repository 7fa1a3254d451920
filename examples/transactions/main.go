// Transactions places orders, and produces, in the transactions of six libraries: database/sql and pgx, each
// with queries of sqlc, and GORM, ent, sqlx and Bun. All share one pool of pgx. In each of them it
// rolls back once and commits once, and compares what was written. Then it consumes the messages, and ends.
//
//	scripts/with-postgres.sh go run ./examples/transactions
//
// It makes a database of its own on the server of ASYNCMONOLITH_TEST_POSTGRES, and removes it.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/examples/transactions/pgxqueries"
	"github.com/asyncmonolith/asyncmonolith-go/examples/transactions/stdqueries"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // no line for each message
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dsn := os.Getenv("ASYNCMONOLITH_TEST_POSTGRES")
	if err := withDatabase(ctx, dsn, func(pool *pgxpool.Pool) error { return run(ctx, pool, os.Stdout) }); err != nil {
		log.Fatal("transactions: ", err)
	}
}

// withDatabase runs fn with a pool on a database of its own.
func withDatabase(ctx context.Context, dsn string, fn func(pool *pgxpool.Pool) error) (err error) {
	if dsn == "" {
		return errors.New("ASYNCMONOLITH_TEST_POSTGRES is not set: run it with scripts/with-postgres.sh")
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	server, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
	if err != nil {
		return err
	}
	clean := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, server.Close(clean)) }()
	name := "transactions_" + strings.ToLower(rand.Text()[:10])
	if _, err := server.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return err
	}
	defer func() { _, dropped := server.Exec(clean, "DROP DATABASE "+name); err = errors.Join(err, dropped) }()
	config.ConnConfig.Database = name
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // pgx's default
	config.MaxConns = 20                                                     // the processor needs 11
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	return fn(pool)
}

// namedShop is a shop with its library's name.
type namedShop struct {
	name string
	shop
}

// run places two orders in each shop, and then consumes the messages of those that were committed.
func run(ctx context.Context, pool *pgxpool.Pool, out io.Writer) error {
	_, err := pool.Exec(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY, item TEXT NOT NULL, handled INTEGER NOT NULL DEFAULT 0)")
	if err != nil {
		return err
	}
	consumers := newConsumers()
	p, err := wire(ctx, pool, consumers...)
	if err != nil {
		return err
	}
	defer p.db.Close()
	shops, err := newShops(pool, p)
	if err != nil {
		return err
	}
	for i, s := range shops {
		if err := place(ctx, pool, out, s, counts{Orders: i, Messages: i * len(consumers)}, len(consumers)); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return consume(ctx, pool, p, out, counts{Orders: len(shops), Handled: len(shops) * len(consumers)})
}

func newConsumers() []bus.Consumer {
	return []bus.Consumer{
		newSQLConsumer(stdqueries.New(nil)), newPgxConsumer(pgxqueries.New(nil)), newGORMConsumer(), newEntConsumer(), newBunConsumer(),
	}
}

func newShops(pool *pgxpool.Pool, p parts) ([]namedShop, error) {
	db := p.db.DB // the *sql.DB of pgxtx.Open
	orm, err := openGORM(db)
	if err != nil {
		return nil, err
	}
	return []namedShop{
		{"database/sql, sqlc", &sqlShop{db, stdqueries.New(db), p.producer}},
		{"pgx, sqlc", &pgxShop{pool, pgxqueries.New(pool), p.producer}},
		{"GORM", &gormShop{orm, p.producer}},
		{"ent", &entShop{openEnt(db), p.producer}},
		{"sqlx", &sqlxShop{sqlx.NewDb(db, "pgx"), p.producer}},
		{"Bun", &bunShop{p.db, p.producer}},
	}, nil
}

// place places an order that is rolled back and one that is committed, and compares the tables.
func place(ctx context.Context, pool *pgxpool.Pool, out io.Writer, s namedShop, before counts, consumers int) error {
	if err := s.PlaceOrder(ctx, Order{ID: rand.Text(), Item: "unicorn"}); !errors.Is(err, errSoldOut) {
		return fmt.Errorf("place an order: got %v, want %w", err, errSoldOut)
	}
	if err := expect(ctx, pool, before); err != nil {
		return fmt.Errorf("after the rollback: %w", err)
	}
	if err := s.PlaceOrder(ctx, Order{ID: rand.Text(), Item: "book"}); err != nil {
		return err
	}
	if err := expect(ctx, pool, counts{Orders: before.Orders + 1, Messages: before.Messages + consumers}); err != nil {
		return fmt.Errorf("after the commit: %w", err)
	}
	_, err := fmt.Fprintf(out, "%-18s  rolled back: 0 orders, 0 messages   committed: 1 order, %d messages\n", s.name, consumers)
	return err
}

// consume runs the processor until no message is left, and compares the tables.
func consume(ctx context.Context, pool *pgxpool.Pool, p parts, out io.Writer, want counts) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.processor.Run(running) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for got, err := (counts{Messages: 1}), error(nil); got.Messages > 0; got, err = count(ctx, pool) {
		if err != nil {
			stop()
			return errors.Join(err, <-ended)
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the processor ended: %w", err)
		case <-tick.C:
		}
	}
	stop()
	if err := <-ended; err != nil {
		return err
	}
	if err := expect(ctx, pool, want); err != nil {
		return fmt.Errorf("after the consumers: %w", err)
	}
	_, err := fmt.Fprintf(out, "consumed: %d messages of %d orders, each once\n", want.Handled, want.Orders)
	return err
}

// counts are the rows of the tables, and how often consumers have handled orders.
type counts struct{ Orders, Messages, Handled int }

func count(ctx context.Context, pool *pgxpool.Pool) (c counts, err error) {
	err = pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM consumer_messages),
		(SELECT coalesce(sum(handled), 0) FROM orders)`).Scan(&c.Orders, &c.Messages, &c.Handled)
	return c, err
}

func expect(ctx context.Context, pool *pgxpool.Pool, want counts) error {
	got, err := count(ctx, pool)
	if err == nil && got != want {
		err = fmt.Errorf("got %+v, want %+v", got, want)
	}
	return err
}
