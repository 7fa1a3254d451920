package store_test

import (
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

func TestMain(m *testing.M) { testapp.Main(m) }

type (
	app    = testapp.App
	order  = testapp.Order
	refund = testapp.Refund
)
