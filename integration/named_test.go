package integration_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// TestErrorsNameTablesWithTheirSchema: whoever has several looks in the right one.
func TestErrorsNameTablesWithTheirSchema(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	db := testdb.Postgres(t)
	registry := must[*bus.Registry](t)(bus.RegistryConfig{Tables: bus.Tables{Schema: "shop", Prefix: "am_"}}.NewRegistry(counting("c", &n)))
	p := must[*outbox.Processor](t)(outbox.NewProcessor(db, registry, outbox.ProcessorConfig{}))
	says := func(want string) {
		t.Helper()
		if err := p.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("check: got %v, want it to name %s", err, want)
		}
	}
	says("there is no table shop.am_asyncmonolith_migrations")
	a := &app{T: t, db: db}
	a.exec("CREATE SCHEMA shop")
	if err := outbox.Migrate(t.Context(), db, registry.Tables()); err != nil {
		t.Fatal(err)
	}
	a.exec("ALTER TABLE shop.am_scheduled_messages RENAME TO gone")
	says("table shop.am_scheduled_messages is not there, though shop.am_asyncmonolith_migrations says so")
	a.exec("DELETE FROM shop.am_asyncmonolith_migrations WHERE version > 1")
	says("the tables of shop.am_asyncmonolith_migrations have version 1")
}

func TestSchedulesTellTheirHealth(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := newApp(t, testdb.SQLite(t), counting("c", &n))
	p := must[*schedule.Processor](t)(schedule.NewProcessor(a.db, a.registry, a.producer, schedule.ProcessorConfig{}))
	if got := p.Health(); got.Ready || got.Err != nil {
		t.Errorf("before: got %+v, want it not ready, without an error", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	eventually(t, "it is ready", func() bool { return p.Health().Ready })
	stop()
	if err := <-done; err != nil || p.Health().Ready {
		t.Errorf("after: got %v and %+v, want it not ready", err, p.Health())
	}
}
