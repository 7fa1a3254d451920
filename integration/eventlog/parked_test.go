package eventlog_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestNoEventOfAParkedStreamIsLost has one of another stream fail for good behind it, in
// the same page.
func TestNoEventOfAParkedStreamIsLost(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		for _, name := range []string{"one", "batch"} {
			t.Run(name, func(t *testing.T) {
				l := &ledger{setup{tables: bus.Tables{Prefix: name + "_"}}.newApp(t, db)}
				l.exec("CREATE TABLE applied" + name + " (stream text, version int, mode text)")
				var whole atomic.Bool
				one := func(ctx context.Context, tx bun.Tx, stream string, version int64, amount int) error {
					if amount < 0 && !whole.Load() {
						return bus.Permanent(errors.New("a negative amount"))
					}
					_, err := tx.NewRaw("INSERT INTO applied"+name+" VALUES (?, ?, '')", stream, version).Exec(ctx)
					return err
				}
				p := projection.Projection{Name: "p", OnError: projection.ParkStream, AttemptDelay: time.Millisecond}
				ofMoves(&p, name == "batch", one)
				// A runner of its own for each part: the next begins with a whole page.
				run := func(last eventlog.Appended) *projection.Runner {
					r := l.runner(p)
					defer running(t, "runner", r.Run)()
					testapp.OK(t, r.WaitFor(l.ctx, "p", last))
					return r
				}
				run(l.append("account-a", eventlog.AnyVersion, moved{-1}))
				l.append("account-a", eventlog.AnyVersion, moved{2}, moved{3})
				l.append("account-b", eventlog.AnyVersion, moved{-4})
				r := run(l.append("account-a", eventlog.AnyVersion, moved{5}))
				if parked, err := r.Parked(l.ctx, "p", 10); len(parked) != 5 || err != nil {
					t.Errorf("parked: got %+v and %v, want all 5", parked, err)
				}
				whole.Store(true)
				if n, err := r.RetryParked(l.ctx, "p"); n != 5 || err != nil {
					t.Errorf("retry parked: got %d and %v, want 5", n, err)
				}
				if n := l.count("SELECT count(*) FROM applied" + name); n != 5 {
					t.Errorf("applied in the end: got %d, want each of 5 once", n)
				}
			})
		}
	})
}
