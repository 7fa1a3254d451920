//go:build unix

package chaos_test

import (
	"context"
	"time"

	"pgregory.net/rapid"

	"github.com/asyncmonolith/asyncmonolith-go/integration/model"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 13: the claim ledger as a pure state machine, with keys, limits and rates, keeps the
// invariants whatever a scheduler draws, and the databases agree with it after every step.

func barModel(b *bar) {
	runs := pick(b, 200, 1000, 10_000)
	begun, tally := time.Now(), make(model.Tally)
	seed := b.Uint64() // of -seed, like every choice: rapid draws the same again
	model.Explore(b.T, seed, runs, 50, func(t *rapid.T) { model.Halves(t, tally, model.Sound) })
	b.figure("%d runs of the model alone: I1-I7 and O1-O6 kept; %v; %.1fs, rapid's seed %d", runs, tally, time.Since(begun).Seconds(), seed)
	if missing := tally.Missing(true); len(missing) > 0 {
		b.Errorf("the model alone: never happened: %q", missing)
	}

	ctx := context.WithoutCancel(b.Context())
	// What nobody reads after a crash of the server need not wait for its disk.
	postgres, err := model.OpenDatabase(ctx, testdb.OpenPostgres(b, testdb.PostgresDSN(b, "synchronous_commit=off")))
	if err != nil {
		b.Fatal(err)
	}
	sqlite, err := model.OpenDatabase(ctx, testdb.OpenSQLiteWith(b, b.TempDir()+"/model.db", "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"))
	if err != nil {
		b.Fatal(err)
	}
	begun, tally = time.Now(), make(model.Tally)
	runs = pick(b, 20, 500, 3000) // under the race detector SQLite, which is Go, takes its time
	model.Explore(b.T, seed, runs, 20, func(t *rapid.T) {
		postgres.Reset()
		sqlite.Reset()
		model.Lockstep(t, tally, model.NewState(model.Sound), postgres, sqlite)
	})
	b.figure("%d runs replayed on PostgreSQL and SQLite: equal after every step; %v; %.1fs, rapid's seed %d", runs, tally, time.Since(begun).Seconds(), seed)
	if missing := tally.Missing(false); b.tier > short && len(missing) > 0 { // few runs are too few for that
		b.Errorf("replayed: never happened: %q", missing)
	}

	mariadb, err := model.OpenDatabase(ctx, testdb.MariaDB(b))
	if err != nil {
		b.Fatal(err)
	}
	begun, tally = time.Now(), make(model.Tally)
	runs = pick(b, 5, 30, 300) // it waits for its disk
	model.Explore(b.T, seed, runs, 20, func(t *rapid.T) {
		mariadb.Reset()
		model.Lockstep(t, tally, model.NewState(model.Sound), mariadb)
	})
	b.figure("%d runs replayed on MariaDB: equal after every step; %v; %.1fs, rapid's seed %d", runs, tally, time.Since(begun).Seconds(), seed)
}
