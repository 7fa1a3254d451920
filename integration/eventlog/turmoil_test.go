package eventlog_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestEverythingAtOnce has writers, erasures, numbering, runners of several
// processes, rebuilds, replays and a promotion go on beside each other. In the end
// the tables are what the log says, and each replay has met each event once.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var mu sync.Mutex
		replayed := map[string]int{} // by insert id
		l := &ledger{newApp(t, db, bus.Consume("again", func(ctx context.Context, e moved) error {
			if m, _ := bus.MessageFromContext(ctx); m.Event.Replay {
				mu.Lock()
				defer mu.Unlock()
				replayed[fmt.Sprint(m.InsertID)]++
			}
			return nil
		}))}
		for _, suffix := range []string{"", "2"} {
			l.exec("CREATE TABLE balances" + suffix + " (stream text PRIMARY KEY, amount int NOT NULL, version int NOT NULL)")
			l.exec("CREATE TABLE applied" + suffix + " (stream text, version int, mode text)")
		}
		purging := func(p projection.Projection, suffix string) projection.Projection {
			p.Shards, p.BatchSize = 2, 7
			p.On = append(p.On, projection.On(func(ctx context.Context, tx bun.Tx, e eventlog.Tombstoned) error {
				_, err := tx.NewRaw("DELETE FROM balances"+suffix+" WHERE stream = ?", e.Stream).Exec(ctx)
				return err
			}))
			return p
		}
		one, two := purging(balances(), ""), purging(balances2(), "2")
		l.process()
		runners := []*projection.Runner{l.runner(one), l.runner(one, two), l.runner(one, two)}
		stops := []func(){}
		for i, r := range runners {
			stops = append(stops, running(t, fmt.Sprint("runner ", i), r.Run))
		}
		var all sync.WaitGroup
		for w := range 3 {
			all.Go(func() {
				for n := range 40 {
					if _, err := l.try(fmt.Sprintf("account-%d", (w+n)%6), eventlog.AnyVersion, moved{n}, moved{1}); err != nil {
						t.Errorf("append: %v", err)
						return
					}
				}
			})
		}
		all.Go(func() {
			for n := range 8 {
				stream := fmt.Sprintf("account-gone%d", n)
				if _, err := l.try(stream, eventlog.NoStream, moved{n}, moved{n}); err != nil {
					t.Errorf("append: %v", err)
				}
				err := l.inTx(func(ctx context.Context, tx bun.Tx) error { return l.log.Tombstone(ctx, tx, stream) })
				if err != nil {
					t.Errorf("tombstone: %v", err)
				}
			}
		})
		all.Go(func() {
			for range 5 {
				if err := runners[0].Rebuild(l.ctx, "balances"); err != nil {
					t.Errorf("rebuild: %v", err)
				}
			}
		})
		for range 2 {
			all.Go(func() { // two processes at one replay
				for _, name := range []string{"first", "second"} {
					if _, err := l.log.Replay(l.ctx, db, eventlog.Replay{Name: name, Consumer: "again"}); err != nil {
						t.Errorf("replay: %v", err)
					}
				}
			})
		}
		all.Wait()
		last := l.append("account-0", eventlog.AnyVersion, moved{1})
		testapp.OK(t, runners[1].WaitFor(l.ctx, "balances", last))
		eventually(t, "the second version is promoted", func() bool { return runners[1].Promote(l.ctx, "balances", 2, 0) == nil })
		eventually(t, "everything is consumed", func() bool { return l.count("SELECT count(*) FROM consumer_messages") == 0 })
		for _, stop := range stops {
			stop()
		}
		l.mustFold("")
		l.mustFold("2")
		mu.Lock()
		defer mu.Unlock()
		for id := range maps.Keys(replayed) {
			if replayed[id] != 1 {
				t.Errorf("message %s of a replay: got it %d times, want once", id, replayed[id])
			}
		}
	})
}
