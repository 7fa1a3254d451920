package handles_test

import (
	"context"
	"fmt"
	"strings"
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
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// poolOf is a pool of pgx with its database of the library.
func poolOf(t *testing.T, dsn string, set func(*pgxpool.Config)) (*pgxpool.Pool, *bun.DB) {
	t.Helper()
	config := must(pgxpool.ParseConfig(dsn))(t)
	set(config)
	pool := must(pgxpool.NewWithConfig(t.Context(), config))(t)
	db := bun.NewDB(pgxtx.Open(pool), pgdialect.New())
	t.Cleanup(func() { _ = db.Close(); pool.Close() })
	return pool, db
}

func inserting(options ...bus.ConsumerOption) bus.Consumer {
	return pgxtx.ConsumeTx("c", func(ctx context.Context, tx pgx.Tx, o order) error {
		_, err := tx.Exec(ctx, "INSERT INTO handles_effects (id) VALUES ($1)", o.ID)
		return err
	}, options...)
}

// TestOnePoolInEachModeOfPgx produces and consumes.
func TestOnePoolInEachModeOfPgx(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool, db := poolOf(t, testdb.PostgresDSN(t), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode, c.MaxConns = mode, 12 })
			withEffects(t, db)
			a := testapp.New(t, db, inserting(outbox.GroupCommit(5)))
			must(0, a.Producer.Within(t.Context(), func(ctx context.Context) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					for i := range 20 {
						if _, err := a.Producer.Produce(ctx, pgxtx.Of(tx), order{ID: fmt.Sprint("it's \\ ", i)}); err != nil {
							return err
						}
					}
					return nil
				})
			}))(t)
			must(a.Scheduler().Upsert(t.Context(), db, order{ID: "x"}, "@hourly", "UTC", schedule.Name("x")))(t)
			a.Start(testapp.Fast())
			testapp.Eventually(t, "all messages are consumed", func() bool { return counts(t, db) == [2]int{20, 0} })
		})
	}
}

// TestAPoolThatIsTooSmall is named by the processor. Everything else works with one connection.
func TestAPoolThatIsTooSmall(t *testing.T) {
	t.Parallel()
	for connections := range int32(3) {
		_, db := poolOf(t, testdb.PostgresDSN(t), func(c *pgxpool.Config) { c.MaxConns = connections + 1 })
		withEffects(t, db)
		a := testapp.New(t, db, inserting())
		a.ProduceMany(3)
		config := testapp.Fast()
		config.Fetchers, config.TxConcurrency = 1, 1
		_, err := outbox.NewProcessor(db, a.Registry, config)
		if connections == 2 {
			must(0, err)(t)
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "3 connections or more are needed") {
			t.Errorf("%d connections: got %v, want an error that asks for 3", connections+1, err)
		}
	}
}

// TestAPoolThatIsClosed under a processor is closed once that has stopped, which the pool does not hold up.
func TestAPoolThatIsClosed(t *testing.T) {
	t.Parallel()
	pool, db := poolOf(t, testdb.PostgresDSN(t), func(c *pgxpool.Config) { c.MaxConns = 12 })
	withEffects(t, db)
	a := testapp.New(t, db, inserting())
	a.ProduceMany(20)
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "some are consumed", func() bool { return counts(t, db)[0] > 0 })
	closed := make(chan struct{})
	go func() { pool.Close(); close(closed) }()
	testapp.Eventually(t, "a producer gets the pool's error", func() bool {
		_, err := a.Producer.Produce(t.Context(), db, order{})
		return err != nil && strings.Contains(err.Error(), "closed pool")
	})
	_ = r.Wait() // it may give up messages that it cannot settle
	<-closed
}

// TestHooksOfAPool run for the library's connections, too.
func TestHooksOfAPool(t *testing.T) {
	t.Parallel()
	_, db := poolOf(t, testdb.PostgresDSN(t), func(c *pgxpool.Config) {
		c.MaxConns = 12
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS hooked")
			if err == nil {
				_, err = conn.Exec(ctx, "SET search_path = hooked")
			}
			return err
		}
	})
	withEffects(t, db)
	a := testapp.New(t, db, inserting())
	a.ProduceMany(5)
	a.Start(testapp.Fast())
	testapp.Eventually(t, "all messages are consumed", func() bool { return counts(t, db) == [2]int{5, 0} })
	if got := a.Count("SELECT count(*) FROM hooked.handles_effects"); got != 5 {
		t.Errorf("got %d rows in the schema of the hook, want 5", got)
	}
}

func TestAPoolThatIsNil(t *testing.T) {
	t.Parallel()
	db := pgxtx.Open(nil)
	defer db.Close()
	if err := db.PingContext(t.Context()); err == nil || !strings.Contains(err.Error(), "the pool is nil") {
		t.Errorf("got %v, want an error that says so", err)
	}
}
