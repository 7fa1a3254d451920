package differential_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/integration/differential"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

func newFuzz(t *testing.T, flaw differential.Flaw) *differential.Fuzz {
	t.Helper()
	f := &differential.Fuzz{Flaw: flaw, Tally: make(differential.Tally)}
	ctx := context.WithoutCancel(t.Context())
	postgres, err := differential.NewSide(ctx, testdb.OpenPostgres(t, testdb.PostgresDSN(t, "synchronous_commit=off")))
	if err != nil {
		t.Fatal(err)
	}
	sqlite, err := differential.NewSide(ctx, testdb.SQLite(t))
	if err != nil {
		t.Fatal(err)
	}
	f.Sides = []*differential.Side{postgres, sqlite}
	return f
}

// TestDatabasesAgree draws runs for ten seconds, and more if something never happened.
func TestDatabasesAgree(t *testing.T) {
	t.Parallel()
	f := newFuzz(t, differential.Sound)
	runs, begun := 0, time.Now()
	for ; time.Since(begun) < 10*time.Second || len(f.Tally.Missing()) > 0; runs++ {
		if time.Since(begun) > 5*time.Minute {
			t.Fatalf("never happened: %q", f.Tally.Missing())
		}
		if err := f.Run(rand.Uint64(), 100); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d runs: %v", runs, f.Tally)
}

// TestAFlawIsFound has models that are wrong.
func TestAFlawIsFound(t *testing.T) {
	t.Parallel()
	for name, flaw := range map[string]differential.Flaw{
		"a savepoint that takes nothing back": differential.KeepsRollback, "snoozes that count": differential.CountsSnoozes, "pauses that are forgotten": differential.ForgetsPause,
		"a place that is lost": differential.LosesPlace, "a key that is not parked": differential.RunsPastParked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFuzz(t, flaw)
			for seed := range uint64(50) {
				if f.Run(seed, 100) != nil {
					return
				}
			}
			t.Error("50 runs: got no difference, want one")
		})
	}
}
