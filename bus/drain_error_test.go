package bus_test

import (
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

func TestDrainErrorNamesEachConsumerOnce(t *testing.T) {
	t.Parallel()
	err := &bus.DrainError{Consumers: []string{"b", "a", "b", "b"}}
	if got, want := err.Error(), `outbox: stopped with 4 consumers still running: "a", "b" x 3`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
