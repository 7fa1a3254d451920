package relay

import (
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Fits tells what NewRunner would say of a receiver, without a database.
func Fits(t *testing.T, receiver Receiver, consumers ...bus.Consumer) error {
	t.Helper()
	registry, err := bus.NewRegistry(consumers...)
	if err != nil {
		t.Fatal(err)
	}
	return receiver.in(&Runner{registry: registry})
}
