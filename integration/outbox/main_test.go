package outbox_test

import (
	"os"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(runChild())
	}
	testapp.Main(m)
}

type (
	app    = testapp.App
	order  = testapp.Order
	refund = testapp.Refund
)
