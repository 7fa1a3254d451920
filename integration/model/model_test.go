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

	"github.com/uptrace/bun"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/asyncmonolith/asyncmonolith-go/integration/model"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seed is that of -rapid.seed, so that a run can be had again, or a new one.
func seed(t *testing.T) uint64 {
	s := testapp.Must[uint64](t)(strconv.ParseUint(flag.Lookup("rapid.seed").Value.String(), 10, 64))
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
	if missing := tally.Missing(model.InHalves); len(missing) > 0 {
		t.Errorf("never happened: %q", missing)
	}
}

// each runs a test once per database, one after the other: rapid reads its settings from flags.
func each(t *testing.T, test func(t *testing.T, db *bun.DB)) {
	t.Run("postgres", func(t *testing.T) { test(t, testdb.OpenPostgres(t, quickDSN(t))) })
	t.Run("mariadb", func(t *testing.T) { test(t, testdb.MariaDB(t)) })
	t.Run("sqlite", func(t *testing.T) { test(t, testdb.SQLite(t)) })
}

// The first runs against a database, so that a failure is seen here, where it is
// easier to work on than in the bar.
// Promise: model
func TestDatabasesAgreeWithTheModel(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		database := testapp.Must[*model.Database](t)(model.OpenDatabase(t.Context(), db))
		tally := make(model.Tally) // too few runs for everything to happen
		model.Explore(t, seed(t), 5, 30, func(t *rapid.T) {
			database.Reset()
			model.Lockstep(t, tally, model.NewState(model.Sound), database)
		})
		t.Log(tally)
	})
}

func openProgram(t *testing.T, db *bun.DB) *model.Program {
	t.Helper()
	return testapp.Must[*model.Program](t)(model.OpenProgram(context.WithoutCancel(t.Context()), db))
}

// It makes ten runs, and up to 200 until everything has happened.
// Promise: model
func TestProgramsLeaveWhatTheModelSays(t *testing.T) {
	each(t, func(t *testing.T, db *bun.DB) {
		tally, program, kind := make(model.Tally), openProgram(t, db), model.OfPrograms
		if !program.AnyOrder() {
			kind = model.OfProgramsOnMariaDB
		}
		for n, first := uint64(0), seed(t); n == 0 || n < 20 && len(tally.Missing(kind)) > 0; n++ {
			model.Explore(t, first+n, 10, 100, func(t *rapid.T) { model.Programs(t, tally, program) })
		}
		t.Log(tally)
		if missing := tally.Missing(kind); len(missing) > 0 {
			t.Errorf("never happened: %q", missing)
		}
	})
}

// The statements of a database are broken.
func TestBrokenStatementsAreDetected(t *testing.T) {
	defer unshrunk(t)()
	for name, texts := range map[string][]string{
		"a savepoint that takes nothing back": {"ROLLBACK TO SAVEPOINT drawn", "SELECT 1"},
		"snoozes that count":                  {"CASE r.outcome WHEN 'failed' THEN 1 ELSE 0 END", "1"},
		"pauses that are forgotten":           {`"paused_consumers" u WHERE`, `"paused_consumers" u WHERE FALSE AND`},
		"a place that is lost": {`p.lane, p.rank, p.group_key FROM "poisoned_messages"`,
			`p.lane, p.rank + 1000000 AS rank, p.group_key FROM "poisoned_messages"`},
		"a key that is not parked": {"lane IS NOT NULL AND parks FROM bad", "FALSE FROM bad"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := openProgram(t, testdb.OpenRewritten(t, quickDSN(t), testdb.Replacing(t, texts...)))
			found := failure(func(t rapid.TB) {
				model.Explore(t, 1, 50, 100, func(t *rapid.T) { model.Programs(t, make(model.Tally), broken) })
			})
			if !strings.Contains(found, ": got") {
				t.Errorf("got %q, want a difference", found)
			}
		})
	}
}

// quickDSN is that of a database that is not read after a crash of the server.
func quickDSN(t *testing.T) string { return testdb.PostgresDSN(t, "synchronous_commit=off") }

// unshrunk has rapid shrink little, where nobody reads how something was found, until the function is called.
func unshrunk(t *testing.T) (undo func()) {
	shrinkTime := flag.Lookup("rapid.shrinktime").Value
	before := shrinkTime.String()
	testapp.OK(t, shrinkTime.Set("100ms"))
	return func() { _ = shrinkTime.Set(before) }
}

// What the invariants are worth shows on a protocol with a mistake.
// Promise: model
func TestInvariantsDetectEveryFlaw(t *testing.T) {
	defer unshrunk(t)()
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
