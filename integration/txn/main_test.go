package txn_test

import (
	"log"
	"os"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// TestMain runs the tests or, in a process that one of them has started, the program that stands still.
func TestMain(m *testing.M) {
	if dsn := os.Getenv(frozenDSN); dsn != "" {
		if err := runFrozen(dsn, os.Getenv(frozenAt)); err != nil {
			log.Fatal(err)
		}
		return
	}
	testapp.Main(m)
}

type (
	app   = testapp.App
	order = testapp.Order
)
