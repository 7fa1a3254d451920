package model_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/asyncmonolith/asyncmonolith-go/integration/model"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seed is that of -rapid.seed, so that a run can be had again, or a new one.
func seed(t *testing.T) uint64 {
	s, err := strconv.ParseUint(flag.Lookup("rapid.seed").Value.String(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-rapid.seed=%d", s)
	return s
}

// The bar of integration/chaos runs this with more runs.
// Promise: model
func TestModelKeepsTheInvariants(t *testing.T) {
	tally := make(model.Tally)
	model.Explore(t, seed(t), 300, 50, func(t *rapid.T) { model.Halves(t, tally, model.Sound) })
	t.Log(tally)
	if missing := tally.Missing(true); len(missing) > 0 {
		t.Errorf("never happened: %q", missing)
	}
}

// The first runs against a database, so that a failure is seen here, where it is
// easier to work on than in the bar.
// Promise: model
func TestDatabasesAgreeWithTheModel(t *testing.T) {
	for name, open := range map[string]func(context.Context) (*model.Database, error){
		"postgres": func(ctx context.Context) (*model.Database, error) {
			return model.OpenDatabase(ctx, testdb.OpenPostgres(t, testdb.PostgresDSN(t, "synchronous_commit=off")))
		},
		"mariadb": func(ctx context.Context) (*model.Database, error) { return model.OpenDatabase(ctx, testdb.MariaDB(t)) },
		"sqlite":  func(ctx context.Context) (*model.Database, error) { return model.OpenDatabase(ctx, testdb.SQLite(t)) },
	} {
		db, err := open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			tally := make(model.Tally) // too few runs for everything to happen
			model.Explore(t, seed(t), 5, 30, func(t *rapid.T) {
				db.Reset()
				model.Lockstep(t, tally, model.NewState(model.Sound), db)
			})
			t.Log(tally)
		})
	}
}

// What the invariants are worth shows on a protocol with a mistake.
// Promise: model
func TestEveryFlawIsFound(t *testing.T) {
	shrinkTime := flag.Lookup("rapid.shrinktime").Value
	before := shrinkTime.String()
	if err := shrinkTime.Set("100ms"); err != nil { // nobody reads how it was found
		t.Fatal(err)
	}
	defer func() { _ = shrinkTime.Set(before) }()
	for flaw, invariant := range map[model.Flaw]string{
		model.NoRecheck: "I3", model.NoMembership: "I4", model.CrashNotCounted: "crashes", model.PoisonInCompany: "I2",
		model.ReleaseCounts: "I5", model.LockedIsCrashed: "I4", model.FenceOnlyByOwner: "I6", model.PartOfAFanOutKept: "I1",
		model.HandOffKept:    "I1",
		model.PoisonTooEarly: "innocent", model.NotRecovered: "I7",
		model.HeadPassedOver: "O1", model.HintInsideLane: "O1", model.RequeuedBehind: "O1", model.RanksSorted: "O1", model.NoGate: "O2",
		model.HeldBeforeGate: "O2", model.FreedEarly: "O2",
		model.ParkNotAsked: "O3", model.RecoveryForgetsParks: "O3", model.SkippedParks: "O4", model.StaysHeld: "O4",
		model.PerKeyNotCounted: "O5", model.SlotLostUsedOn: "O5", model.SlotReturnedByAnother: "O5", model.RateNotLocked: "O6",
		model.RateSavesUp: "O6", model.KeyRateByClaim: "O6",
	} {
		t.Run(string(flaw), func(t *testing.T) {
			found := failure(func(t rapid.TB) {
				model.Explore(t, 1, 3000, 50, func(t *rapid.T) { model.Halves(t, make(model.Tally), flaw) })
			})
			if !strings.Contains(found, invariant) {
				t.Errorf("%s: got %q, want a violation of %s", flaw, found, invariant)
			}
		})
	}
}

// failure returns what a check has to say when it fails, and "" when it does not.
func failure(check func(t rapid.TB)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(r)
	}()
	<-done
	return r.text
}

// recorder is a test that may fail.
type recorder struct {
	rapid.TB
	failed bool
	text   string
}

func (r *recorder) Helper()                         {}
func (r *recorder) Name() string                    { return "flaw" }
func (r *recorder) Logf(format string, args ...any) {}
func (r *recorder) Log(args ...any)                 {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failed, r.text = true, r.text+fmt.Sprintf(format, args...)
}
func (r *recorder) Fatal(args ...any)            { r.Errorf("%v", args); r.FailNow() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); r.FailNow() }
func (r *recorder) FailNow()                     { r.failed = true; runtime.Goexit() }
func (r *recorder) Failed() bool                 { return r.failed }
