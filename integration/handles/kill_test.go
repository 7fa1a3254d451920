package handles_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

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

// childVariable makes this test binary a process of the application that stands still, for the test to kill: "KIND STAGE DSN".
const childVariable = "ASYNCMONOLITH_TEST_HANDLES_CHILD"

const insertEffect = "INSERT INTO handles_effects (id) VALUES ('a')"

// runChild prints a line before it stands still in the middle, and after the commit.
func runChild(ctx context.Context) error {
	words := strings.SplitN(os.Getenv(childVariable), " ", 3)
	pool, err := pgxpool.New(ctx, words[2])
	if err != nil {
		return err
	}
	db := bun.NewDB(pgxtx.Open(pool), pgdialect.New())
	consumer := killed(words[0], standStill)
	if words[1] == "grouped" {
		consumer = grouped(func() { fmt.Println("has run") })
	}
	registry, err := bus.RegistryConfig{Dialect: db.Dialect()}.NewRegistry(consumer)
	if err != nil {
		return err
	}
	if words[1] == "consuming" || words[1] == "grouped" {
		config := testapp.Fast()
		config.LeaseDuration, config.Fetchers, config.TxConcurrency, config.DefaultTimeout = time.Second, 1, 1, time.Hour
		db.SetMaxOpenConns(5)
		processor, err := outbox.NewProcessor(db, registry, config)
		if err != nil {
			return err
		}
		return processor.Run(ctx)
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		return err
	}
	if words[0] == "pgx.Tx" {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertEffect); err != nil {
				return err
			}
			if _, err := producer.Produce(ctx, pgxtx.Of(tx), order{}); err != nil {
				return err
			}
			standStill()
			return nil
		})
	}
	tx, err := db.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, insertEffect); err != nil {
		return err
	}
	if _, err := producer.Produce(ctx, tx, order{}); err != nil {
		return err
	}
	standStill()
	return tx.Commit()
}

func standStill() {
	fmt.Println("in the middle")
	select {}
}

// killed is a consumer that calls then after its write.
func killed(kind string, then func()) bus.Consumer {
	if kind == "pgx.Tx" {
		return pgxtx.ConsumeTx("c", func(ctx context.Context, tx pgx.Tx, _ order) error {
			_, err := tx.Exec(ctx, insertEffect)
			then()
			return err
		})
	}
	return outbox.ConsumeTx("c", func(ctx context.Context, tx *sql.Tx, _ order) error {
		_, err := tx.ExecContext(ctx, insertEffect)
		then()
		return err
	})
}

// killChild starts a process and kills it when it stands still.
func killChild(t *testing.T, kind, stage, dsn string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), childVariable+"="+kind+" "+stage+" "+dsn), os.Stderr
	output := must(cmd.StdoutPipe())(t)
	must(0, cmd.Start())(t)
	line, err := bufio.NewReader(output).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || line != "in the middle\n" {
		t.Fatalf("the process printed %q and ended with %v, want it to stand still", line, err)
	}
}

func TestAKilledProcessLeavesNothingUncommitted(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sql.Tx", "pgx.Tx"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.PostgresDSN(t)
			db := testdb.OpenPostgres(t, dsn)
			withEffects(t, db)
			a := testapp.New(t, db, killed(kind, func() {}))
			gone := func(what string, want [2]int) {
				t.Helper()
				testapp.Eventually(t, "the server ends the transaction", func() bool {
					var others int
					err := db.NewRaw("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'").
						Scan(t.Context(), &others)
					return err == nil && others == 0
				})
				if got := counts(t, db); got != want {
					t.Errorf("%s: got %v rows and messages, want %v", what, got, want)
				}
			}
			killChild(t, kind, "producing", dsn)
			gone("killed before its commit", [2]int{})
			a.Produce(order{})
			killChild(t, kind, "consuming", dsn)
			gone("killed while it consumes", [2]int{0, 1})
			a.Start(testapp.Fast())
			testapp.Eventually(t, "another process has consumed it", func() bool { return counts(t, db) == [2]int{1, 0} })
		})
	}
}

// grouped is a consumer of pgx that shares its transactions. It calls then after its write.
func grouped(then func()) bus.Consumer {
	return pgxtx.ConsumeTx("c", func(ctx context.Context, tx pgx.Tx, o order) error {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := inner.Exec(ctx, "INSERT INTO handles_effects (id) VALUES ($1)", o.ID); err != nil {
			return err
		}
		then()
		return inner.Commit(ctx)
	}, outbox.GroupCommit(10), bus.MaxAttempts(100))
}

// TestKilledGroupsOfPgxHaveTheirEffectsOnce kills twenty processes, each a few runs later in its life than the one before.
func TestKilledGroupsOfPgxHaveTheirEffectsOnce(t *testing.T) {
	t.Parallel()
	const kills, each = 20, 15
	dsn := testdb.PostgresDSN(t)
	db := testdb.OpenPostgres(t, dsn)
	withEffects(t, db)
	a := testapp.New(t, db, grouped(func() {}))
	for kill := range kills {
		items := make([]outbox.Item, each)
		for i := range items {
			items[i].Payload = order{ID: fmt.Sprint(kill, ".", i)}
		}
		must(a.Producer.ProduceMany(t.Context(), db, items...))(t)
		killAfter(t, 1+kill%7, dsn)
	}
	a.Start(testapp.Fast())
	testapp.Eventually(t, "all messages are consumed", func() bool { return counts(t, db)[1] == 0 })
	var distinct int
	must(0, db.NewRaw("SELECT count(DISTINCT id) FROM handles_effects").Scan(t.Context(), &distinct))(t)
	if got := counts(t, db)[0]; got != kills*each || distinct != got {
		t.Errorf("got %d effects of %d messages, want %d of each", got, distinct, kills*each)
	}
	if got := a.Poisoned(); len(got) > 0 {
		t.Errorf("got poisoned messages %v, want none", got)
	}
}

// killAfter kills a process of grouped after so many runs.
func killAfter(t *testing.T, runs int, dsn string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), childVariable+"=pgx.Tx grouped "+dsn), os.Stderr
	output := must(cmd.StdoutPipe())(t)
	must(0, cmd.Start())(t)
	lines := bufio.NewReader(output)
	for range runs {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Errorf("the process ended by itself: %v", err)
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
