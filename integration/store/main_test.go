package store_test

import (
	"os"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestMain has every run be about each database: what they differ in is here.
func TestMain(m *testing.M) {
	_ = os.Unsetenv(testdb.DatabasesVariable) // it fails for an invalid name only
	testapp.Main(m)
}

type (
	app    = testapp.App
	order  = testapp.Order
	refund = testapp.Refund
)
