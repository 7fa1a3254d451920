package console_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// digest stands for all that the tables of an SQLite database hold.
func digest(t testing.TB, db *bun.DB) string { t.Helper(); return digestOf(t, db, "TRUE") }

// digestOf stands for what some of its tables hold.
func digestOf(t testing.TB, db *bun.DB, which string) string {
	t.Helper()
	var tables []string
	if err := db.NewRaw("SELECT name FROM sqlite_master WHERE type = 'table' AND "+which+" ORDER BY name").Scan(t.Context(),
		&tables); err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	for _, table := range tables {
		var rows []map[string]any
		if err := db.NewRaw("SELECT * FROM ? ORDER BY 1, 2", bun.Ident(table)).Scan(t.Context(), &rows); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(hash, table, rows) // maps are printed in the order of their keys
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// count is the number that a query returns.
func count(t testing.TB, db *bun.DB, query string, args ...any) (n int) {
	t.Helper()
	err := testapp.Insist(func() error { return db.NewRaw(query, args...).Scan(t.Context(), &n) })
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}
