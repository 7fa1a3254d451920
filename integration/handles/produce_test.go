package handles_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// TestProduceIsPartOfAnyTransaction produces in one statement, in several, and with an insert id.
//
// Promise: any-transaction
func TestProduceIsPartOfAnyTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *bun.DB, w world) {
		a := testapp.New(t, db, testapp.Consumed("one"), testapp.Consumed("two"))
		for _, commit := range []bool{false, true} {
			tx := w.begin(t, db)
			write(t, tx, "a")
			produces := [][]outbox.Option{nil, {outbox.InsertID("id")}}
			if db.Dialect().Name() != dialect.MySQL {
				produces = append(produces, []outbox.Option{outbox.InsertID("id", outbox.Replace())})
			}
			for _, options := range produces {
				must(a.Producer.Produce(t.Context(), tx, order{ID: "a"}, options...))(t)
			}
			write(t, tx, "b")
			want := [2]int{}
			if err := tx.Rollback; commit {
				err, want = tx.Commit, [2]int{2, 4}
				must(0, err())(t)
			} else {
				must(0, err())(t)
			}
			if got := counts(t, db); got != want {
				t.Errorf("committed %t: got %v rows and messages, want %v", commit, got, want)
			}
		}
	})
}

// TestAFailedProduceLeavesAnyTransactionUsable has a layer fail after the insert.
func TestAFailedProduceLeavesAnyTransactionUsable(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	each(t, func(t *testing.T, db *bun.DB, w world) {
		a := testapp.New(t, db, testapp.Consumed("one"))
		fails := must(outbox.NewProducer(a.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{
			func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, b *bus.Batch) error { return errors.Join(next(ctx, b), broken) }
			},
		}}))(t)
		tx := w.begin(t, db)
		write(t, tx, "a")
		if _, err := fails.Produce(t.Context(), tx, order{}); !errors.Is(err, broken) {
			t.Errorf("produce: got %v, want the layer's error", err)
		}
		must(a.Producer.Produce(t.Context(), tx, order{}))(t)
		must(0, tx.Commit())(t)
		if got := counts(t, db); got != [2]int{1, 1} {
			t.Errorf("got %v rows and messages, want 1, 1", got)
		}
	})
}

func TestSchedulesChangeInAnyTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *bun.DB, w world) {
		a := testapp.New(t, db, testapp.Consumed("one"))
		s := a.Scheduler()
		var names []string
		list := func() string {
			names = nil
			all, _, err := s.List(t.Context(), db, schedule.Filter{}, admin.Page{})
			for _, one := range must(all, err)(t) {
				names = append(names, one.Name)
			}
			return strings.Join(names, ",")
		}
		for _, end := range []func(transaction) error{transaction.Rollback, transaction.Commit} {
			tx := w.begin(t, db)
			id := must(s.Upsert(t.Context(), tx, order{}, "@hourly", "UTC", schedule.Name("hourly")))(t)
			must(0, s.Pause(t.Context(), tx, id))(t)
			must(0, s.Sync(t.Context(), tx, "tag", schedule.Spec{Name: "daily", Payload: order{}, Expression: "@daily", Zone: "UTC"}))(t)
			must(0, end(tx))(t)
		}
		if got := list(); got != "daily,hourly" && got != "hourly,daily" {
			t.Errorf("got schedules %s, want daily and hourly", got)
		}
		tx := w.begin(t, db)
		must(s.DeleteByTag(t.Context(), tx, "tag"))(t)
		must(0, tx.Commit())(t)
		if got := list(); got != "hourly" {
			t.Errorf("got schedules %s, want hourly", got)
		}
	})
}

// TestWithinWakesAtTheCommit has processors that would look again in an hour.
func TestWithinWakesAtTheCommit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		withEffects(t, db)
		started := make(chan struct{}, 1)
		a := testapp.New(t, db, bus.Consume("one", func(context.Context, order) error { started <- struct{}{}; return nil }))
		config := testapp.Fast()
		config.PollInterval = time.Hour
		a.Start(config)
		for range 3 {
			err := a.Producer.Within(t.Context(), func(ctx context.Context) error {
				tx, err := db.DB.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer tx.Rollback() //nolint:errcheck // committed
				if _, err := a.Producer.Produce(ctx, tx, order{}); err != nil {
					return err
				}
				if _, err := a.Producer.Produce(ctx, db, order{}); !errors.Is(err, outbox.ErrNotInTx) {
					t.Errorf("produce beside the transaction: got %v, want ErrNotInTx", err)
				}
				if err := a.Producer.Within(ctx, func(context.Context) error { return nil }); !errors.Is(err, outbox.ErrNotInTx) {
					t.Errorf("within inside of it: got %v, want ErrNotInTx", err)
				}
				return tx.Commit()
			})
			must(0, err)(t)
			select {
			case <-started:
			case <-time.After(time.Minute):
				t.Fatal("the consumer has not started after a minute")
			}
		}
	})
}

func TestHandlesThatAreRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("one"))
		over := must(db.DB.BeginTx(t.Context(), nil))(t)
		must(0, over.Rollback())(t)
		open := must(db.DB.BeginTx(t.Context(), nil))(t)
		defer open.Rollback() //nolint:errcheck // nothing was written
		without := must(outbox.NewProducer(must(bus.NewRegistry(testapp.Consumed("one")))(t), outbox.ProducerConfig{}))(t)
		for _, c := range []struct {
			name     string
			producer *outbox.Producer
			handle   bus.Handle
			want     string
		}{
			{"nil", a.Producer, nil, "the database handle is nil"},
			{"a nil transaction", a.Producer, (*sql.Tx)(nil), "the database handle is a nil *sql.Tx"},
			{"a nil transaction of another library", a.Producer, (*foreign)(nil), "the database handle is a nil *handles_test.foreign"},
			{"a transaction made by hand", a.Producer, new(sql.Tx), "the database handle is a zero sql.Tx"},
			{"another library's transaction made by hand", a.Producer, foreign{}, "the database handle, a handles_test.foreign, panicked"},
			{"a transaction of pgx made by hand", a.Producer, pgxtx.Of(new(pgxpool.Tx)), "panicked"},
			{"a nil transaction of pgx", a.Producer, pgxtx.Of((*pgxpool.Tx)(nil)), "the database handle is nil"},
			{"a connection", a.Producer, new(sql.Conn), "the database handle is a *sql.Conn: a transaction"},
			{"a pool", a.Producer, db.DB, "the database handle is a *sql.DB: a transaction, or a handle of Bun, is allowed"},
			{"no dialect", without, open, "a *sql.Tx needs bus.RegistryConfig.Dialect"},
			{"a transaction that is over", a.Producer, over, sql.ErrTxDone.Error()},
		} {
			for _, options := range [][]outbox.Option{nil, {outbox.InsertID("id")}} { // a statement, or a query
				_, err := c.producer.Produce(t.Context(), c.handle, order{}, options...)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: got error %v, want one with %q", c.name, err, c.want)
				}
			}
		}
	})
}

func TestADialectThatIsNil(t *testing.T) {
	t.Parallel()
	_, err := bus.RegistryConfig{Dialect: (*pgdialect.Dialect)(nil)}.NewRegistry(testapp.Consumed("one"))
	if want := "RegistryConfig.Dialect is a nil *pgdialect.Dialect"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

// TestTransactionsOfTheLibraryAreNotNested, whichever began first. A commit that fails wakes nothing, and is returned.
func TestTransactionsOfTheLibraryAreNotNested(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	p := testapp.New(t, db, testapp.Consumed("one")).Producer
	within := func(ctx context.Context) error { return p.Within(ctx, func(context.Context) error { return nil }) }
	runInTx := func(ctx context.Context) error {
		return p.RunInTx(ctx, db, func(context.Context, bun.Tx) error { return nil })
	}
	for name, err := range map[string]error{
		"Within in Within":   p.Within(t.Context(), within),
		"RunInTx in Within":  p.Within(t.Context(), runInTx),
		"Within in RunInTx":  p.RunInTx(t.Context(), db, func(ctx context.Context, _ bun.Tx) error { return within(ctx) }),
		"RunInTx in RunInTx": p.RunInTx(t.Context(), db, func(ctx context.Context, _ bun.Tx) error { return runInTx(ctx) }),
	} {
		if !errors.Is(err, outbox.ErrNotInTx) {
			t.Errorf("%s: got %v, want ErrNotInTx", name, err)
		}
	}
	err := p.Within(t.Context(), func(ctx context.Context) error {
		tx := must(db.DB.BeginTx(ctx, nil))(t)
		must(p.Produce(ctx, tx, order{}))(t)
		must(0, tx.Rollback())(t)
		return tx.Commit()
	})
	if err != sql.ErrTxDone {
		t.Errorf("a commit that fails: got %v, want it unchanged", err)
	}
}
