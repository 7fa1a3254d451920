//go:build unix

package chaos_test

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/differential"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 13, again: what producers, consumers, operators and schedules do in random
// transactions leaves the same on every database.

func barDifferential(b *bar) {
	f := &differential.Fuzz{Tally: make(differential.Tally)}
	for _, db := range []*bun.DB{quickPostgres(b), quickSQLite(b), testdb.MariaDB(b)} {
		side, err := differential.NewSide(context.WithoutCancel(b.Context()), db)
		if err != nil {
			b.Fatal(err)
		}
		f.Sides = append(f.Sides, side)
	}
	const steps = 200
	runs := pick(b, 10, 30, 300)
	for range runs {
		if err := f.Run(b.Uint64(), steps); err != nil {
			b.Fatal(err)
		}
	}
	if missing := f.Tally.Missing(); len(missing) > 0 {
		b.Errorf("never happened: %q", missing)
	}
	b.figure("%d runs of %d steps, about half of them also on MariaDB: all databases equal after every step; %v", runs, steps, f.Tally)
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
