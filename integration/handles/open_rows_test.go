package handles_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestAConsumerThatAlwaysLeavesRowsOpen is at fault, and not the database, which would cost no attempt.
func TestAConsumerThatAlwaysLeavesRowsOpen(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]bus.ConsumerOption{"alone": nil, "group": {outbox.GroupCommit(5)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := testapp.New(t, testdb.Postgres(t), outbox.ConsumeTx("c", func(ctx context.Context, tx *sql.Tx, _ order) error {
				rows, err := tx.QueryContext(context.WithoutCancel(ctx), "SELECT 1 UNION ALL SELECT 2") // its end would close them
				if err == nil {
					rows.Next()
				}
				return err
			}, append(options, bus.MaxAttempts(2))...))
			a.ProduceMany(3)
			a.Start(testapp.Fast())
			testapp.Eventually(t, "they are poisoned", func() bool { return len(a.Poisoned()) == 3 })
			var failures []string
			must(0, a.DB.NewRaw("SELECT errors FROM poisoned_messages").Scan(t.Context(), &failures))(t)
			if got, want := failures[0], "left rows of its transaction open"; !strings.Contains(got, want) {
				t.Errorf("got %s, want an error with %q", got, want)
			}
		})
	}
}
