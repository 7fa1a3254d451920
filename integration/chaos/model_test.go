//go:build unix

package chaos_test

import (
	"context"
	"time"

	"github.com/uptrace/bun"
	"pgregory.net/rapid"

	"github.com/asyncmonolith/asyncmonolith-go/integration/model"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 13: the claim ledger as a pure state machine, with keys, limits and rates, keeps the
// invariants whatever a scheduler draws, and the databases agree with it after every step, also where
// programs call the public API.

func barModel(b *bar) {
	seed := b.Uint64() // of -seed, like every choice: rapid draws the same again
	ctx := context.WithoutCancel(b.Context())
	explore := func(what string, runs, steps int, kind model.Kind, complete bool, run func(t *rapid.T, tally model.Tally)) {
		begun, tally := time.Now(), make(model.Tally)
		model.Explore(b.T, seed, runs, steps, func(t *rapid.T) { run(t, tally) })
		b.figure("%d runs %s; %v; %.1fs, rapid's seed %d", runs, what, tally, time.Since(begun).Seconds(), seed)
		if missing := tally.Missing(kind); complete && len(missing) > 0 {
			b.Errorf("%s: never happened: %q", what, missing)
		}
	}
	replay := func(on string, runs int, complete bool, dbs ...*bun.DB) {
		systems := []model.System{nil} // the model, which begins anew in each run
		var resets []func()
		for _, db := range dbs {
			database := testapp.Must[*model.Database](b)(model.OpenDatabase(ctx, db))
			systems, resets = append(systems, database), append(resets, database.Reset)
		}
		explore("replayed on "+on+": equal after every step", runs, 20, model.InLockstep, complete, func(t *rapid.T, tally model.Tally) {
			for _, reset := range resets {
				reset()
			}
			systems[0] = model.NewState(model.Sound)
			model.Lockstep(t, tally, systems...)
		})
	}
	explore("of the model alone: I1-I7 and O1-O6 kept", pick(b, 200, 1000, 10_000), 50, model.InHalves, true,
		func(t *rapid.T, tally model.Tally) { model.Halves(t, tally, model.Sound) })
	// Under the race detector SQLite, which is Go, takes its time, and few runs see not everything.
	replay("PostgreSQL and SQLite", pick(b, 20, 500, 3000), b.tier > short, quickPostgres(b), quickSQLite(b))
	replay("MariaDB", pick(b, 5, 30, 300), false, testdb.MariaDB(b)) // it waits for its disk
	programs := func(on string, runs int, db *bun.DB, kind model.Kind) {
		program := testapp.Must[*model.Program](b)(model.OpenProgram(ctx, db))
		explore("of programs on "+on+": equal after every step", runs, 200, kind, b.tier > short,
			func(t *rapid.T, tally model.Tally) { model.Programs(t, tally, program) })
	}
	programs("PostgreSQL", pick(b, 5, 60, 300), quickPostgres(b), model.OfPrograms)
	programs("SQLite", pick(b, 5, 60, 300), quickSQLite(b), model.OfPrograms)
	programs("MariaDB", pick(b, 5, 60, 150), testdb.MariaDB(b), model.OfProgramsOnMariaDB)
}

// quickPostgres does not wait for its disk: it is not read after a crash.
func quickPostgres(b *bar) *bun.DB {
	return testdb.OpenPostgres(b, testdb.PostgresDSN(b, "synchronous_commit=off"))
}

// quickSQLite does not sync either.
func quickSQLite(b *bar) *bun.DB {
	return testdb.OpenSQLiteWith(b, b.TempDir()+"/quick.db",
		"_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
}
