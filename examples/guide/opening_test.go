package guide_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestDatabasesOfTheGuideOpen starts a processor's checks on SQLite, and has the drivers read the addresses of the others.
func TestDatabasesOfTheGuideOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	db, err := guide.OpenSQLite()
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	registry, err := bus.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Migrate(t.Context(), db, registry.Tables()); err != nil {
		t.Fatal(err)
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := processor.Check(t.Context()); err != nil {
		t.Errorf("a processor on SQLite: %v", err)
	}
	postgres, err := guide.OpenPostgres()
	if err != nil {
		t.Fatal(err)
	}
	defer postgres.Close()
}

// TestTheMariaDBAddressOfTheGuideIsRead reads it from the guide.
func TestTheMariaDBAddressOfTheGuideIsRead(t *testing.T) {
	text, err := os.ReadFile("../../docs/databases.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?m)^app:secret@.*$").FindAll(text, -1)
	if len(found) != 1 {
		t.Fatalf("addresses: got %q, want one", found)
	}
	config, err := mysql.ParseDSN(string(found[0]))
	if err != nil || config.DBName != "shop" || config.Params["idle_transaction_timeout"] != "60" || config.ReadTimeout == 0 {
		t.Errorf("got %+v, %v, want the database and the settings of the guide", config, err)
	}
}
