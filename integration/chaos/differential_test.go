//go:build unix

package chaos_test

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/differential"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 13, again: what producers, consumers, people and schedules do in random
// transactions leaves the same on PostgreSQL and SQLite, and what a model expects.

func barDifferential(b *bar) {
	ctx := context.WithoutCancel(b.Context())
	// What nobody reads after a crash of the server need not wait for its disk.
	postgres, err := differential.NewSide(ctx, testdb.OpenPostgres(b, testdb.PostgresDSN(b, "synchronous_commit=off")))
	if err != nil {
		b.Fatal(err)
	}
	sqlite, err := differential.NewSide(ctx, testdb.OpenSQLiteWith(b, b.TempDir()+"/fuzz.db", "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"))
	if err != nil {
		b.Fatal(err)
	}
	f := &differential.Fuzz{Sides: []*differential.Side{postgres, sqlite}, Tally: make(differential.Tally)}
	const steps = 200
	runs, lasts := 0, pick(b, 10*time.Second, 30*time.Second, 10*time.Minute)
	for begun := time.Now(); time.Since(begun) < lasts; runs++ {
		if err := f.Run(b.Uint64(), steps); err != nil {
			b.Fatal(err)
		}
	}
	if missing := f.Tally.Missing(); len(missing) > 0 {
		b.Errorf("never happened: %q", missing)
	}
	b.figure("%d runs of %d steps on PostgreSQL and SQLite in %s: equal after every step, and what the model expects; %v", runs, steps, lasts, f.Tally)
}
