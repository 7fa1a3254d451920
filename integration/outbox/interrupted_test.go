package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestAnInterruptedProduceIsAllOrNothing ends the context of a produce at some moment of
// it. SQLite then rolls the whole transaction back by itself, and what is written next
// must not be committed alone.
func TestAnInterruptedProduceIsAllOrNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &runs))
		a.Exec("CREATE TABLE notes (n int)")
		many := make([]outbox.Item, 3000)
		for i := range many {
			many[i].Payload = order{ID: "many"}
		}
		for _, items := range [][]outbox.Item{many, many[:400]} { // several statements, and one
			for try := range 25 {
				a.Exec("DELETE FROM notes")
				a.Exec("DELETE FROM consumer_messages")
				err := a.Producer.RunInTx(a.Context(), db, func(ctx context.Context, tx bun.Tx) error {
					if _, err := tx.NewRaw("INSERT INTO notes VALUES (1)").Exec(ctx); err != nil {
						return err
					}
					short, cancel := context.WithTimeout(ctx, time.Duration(try)*time.Millisecond)
					defer cancel()
					_, _ = a.Producer.ProduceMany(short, tx, items...)
					_, err := tx.NewRaw("INSERT INTO notes VALUES (2)").Exec(ctx)
					return err
				})
				notes := a.Count("SELECT count(*) FROM notes")
				messages := a.Count("SELECT count(*) FROM consumer_messages")
				switch {
				case err == nil && (notes != 2 || messages != 0 && messages != len(items)),
					err != nil && (notes != 0 || messages != 0):
					t.Fatalf("%d items, after %d ms: got error %v, %d notes and %d messages, want all or nothing", len(items), try, err, notes, messages)
				}
			}
		}
	})
}
