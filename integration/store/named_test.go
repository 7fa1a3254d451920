package store_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestErrorsNameTablesWithTheirSchema: whoever has several looks in the right one.
func TestErrorsNameTablesWithTheirSchema(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	db := testdb.Postgres(t)
	registry := testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Tables: bus.Tables{Schema: "shop",
		Prefix: "am_"}}.NewRegistry(testapp.Counting("c", &n)))
	p := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, registry, outbox.ProcessorConfig{}))
	says := func(want string) {
		t.Helper()
		if err := p.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("check: got %v, want it to name %s", err, want)
		}
	}
	says("there is no table shop.am_asyncmonolith_migrations")
	a := &app{T: t, DB: db}
	a.Exec("CREATE SCHEMA shop")
	testapp.OK(t, outbox.Migrate(t.Context(), db, registry.Tables()))
	a.Exec("ALTER TABLE shop.am_scheduled_messages RENAME TO gone")
	says("table shop.am_scheduled_messages is not there, though shop.am_asyncmonolith_migrations says so")
	a.Exec("UPDATE shop.am_asyncmonolith_migrations SET version = 0")
	says("the tables of shop.am_asyncmonolith_migrations have version 0")
}
