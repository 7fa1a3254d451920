package testdb_test

import (
	"os"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// The bar 9-isolation runs this suite, too, and so learns that its level is in
// effect, for statements and for transactions that name none.
func TestPostgresHasTheIsolationItIsTold(t *testing.T) {
	levels := []string{os.Getenv(testdb.IsolationVariable)}
	if levels[0] == "" {
		levels = []string{"read committed", "repeatable read", "serializable"}
	}
	for _, level := range levels {
		t.Setenv(testdb.IsolationVariable, level)
		db := testdb.Postgres(t)
		for _, setting := range []string{"default_transaction_isolation", "transaction_isolation"} {
			var got string
			if err := db.QueryRowContext(t.Context(), "SHOW "+setting).Scan(&got); err != nil || got != level {
				t.Errorf("%s: got %q and error %v, want %q", setting, got, err, level)
			}
		}
	}
}
