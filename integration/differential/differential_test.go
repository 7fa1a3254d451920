package differential_test

import (
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/uptrace/bun"
	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/integration/differential"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

var seed = flag.Uint64("seed", rand.Uint64(), "of the first run")

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

func newFuzz(t *testing.T, dbs ...*bun.DB) *differential.Fuzz {
	t.Helper()
	f := &differential.Fuzz{Tally: make(differential.Tally)}
	for _, db := range dbs {
		side, err := differential.NewSide(context.WithoutCancel(t.Context()), db)
		if err != nil {
			t.Fatal(err)
		}
		f.Sides = append(f.Sides, side)
	}
	return f
}

// quick is the DSN of a database that is not read after a crash of the server.
func quick(t *testing.T) string { return testdb.PostgresDSN(t, "synchronous_commit=off") }

// TestDatabasesAgree makes ten runs, and up to a hundred until everything has happened.
// Promise: model
func TestDatabasesAgree(t *testing.T) {
	t.Parallel()
	const runs = 10
	f := newFuzz(t, testdb.OpenPostgres(t, quick(t)), testdb.SQLite(t), testdb.MariaDB(t))
	t.Logf("-seed %d", *seed)
	done := 0
	for ; done < runs || done < 10*runs && len(f.Tally.Missing()) > 0; done++ {
		if err := f.Run(*seed+uint64(done), 100); err != nil {
			t.Fatal(err)
		}
	}
	if missing := f.Tally.Missing(); len(missing) > 0 {
		t.Errorf("never happened: %q", missing)
	}
	t.Logf("%d runs: %v", done, f.Tally)
}

// TestFlawIsFound breaks the statements of one database. It begins with the seed that found the flaw last.
func TestFlawIsFound(t *testing.T) {
	t.Parallel()
	found := map[string]uint64{"a place that is lost": 2, "a key that is not parked": 2, "pauses that are forgotten": 11} // else 0
	for name, texts := range map[string][]string{
		"a savepoint that takes nothing back": {"ROLLBACK TO SAVEPOINT drawn", "SELECT 1"},
		"snoozes that count":                  {"CASE r.outcome WHEN 'failed' THEN 1 ELSE 0 END", "1"},
		"pauses that are forgotten":           {`"paused_consumers" u WHERE`, `"paused_consumers" u WHERE FALSE AND`},
		"a place that is lost": {`p.lane, p.rank FROM "poisoned_messages"`,
			`p.lane, p.rank + 1000000 AS rank FROM "poisoned_messages"`},
		"a key that is not parked": {"lane IS NOT NULL AND parks FROM bad", "FALSE FROM bad"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFuzz(t, testdb.OpenRewritten(t, quick(t), testdb.Replacing(t, texts...)), testdb.SQLite(t))
			for seed := found[name]; seed < 50; seed++ {
				if f.Run(seed, 100) != nil {
					return
				}
			}
			t.Errorf("seeds %d to 49: got no difference, want one", found[name])
		})
	}
}
