package heartbeat_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// silent is a database that does not answer.
type silent struct{}

func (silent) Connect(ctx context.Context) (driver.Conn, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}
func (silent) Driver() driver.Driver { return nil }

// TestEndReturnsWithinASecond: a run ends within a second, also while the database does not answer a report.
func TestEndReturnsWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry, err := bus.NewRegistry()
		if err != nil {
			t.Fatal(err)
		}
		db := bun.NewDB(sql.OpenDB(silent{}), pgdialect.New())
		defer func() { _ = db.Close() }()
		s, err := store.For(db.Dialect().Name(), registry.Tables())
		if err != nil {
			t.Fatal(err)
		}
		end := heartbeat.New(heartbeat.Config{Store: s, DB: db, Registry: registry, Kind: "processor",
			Doing: func() heartbeat.State { return heartbeat.State{} }, Logger: slog.New(slog.DiscardHandler)}).Start(t.Context())
		<-time.After(100 * time.Millisecond) // the first report is under way
		begun := time.Now()
		if end(); time.Since(begun) >= time.Second {
			t.Errorf("the end took %s, want less than a second", time.Since(begun))
		}
	})
}

// BenchmarkRan is what it costs to count a run.
func BenchmarkRan(b *testing.B) {
	t := new(heartbeat.Tally)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			t.Ran(bus.Done, time.Microsecond, time.Minute)
		}
	})
}
