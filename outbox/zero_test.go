package outbox_test

import (
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestAProcessorThatWasNotMadeSaysSo: under fx a constructor may get one.
func TestAProcessorThatWasNotMadeSaysSo(t *testing.T) {
	t.Parallel()
	var p outbox.Processor
	p.Close()
	_, nextErr := p.ProcessNext(t.Context())
	_, queuesErr := p.Queues(t.Context())
	for call, err := range map[string]error{
		"Run": p.Run(t.Context()), "Check": p.Check(t.Context()), "Health": p.Health().Err, "ProcessNext": nextErr, "Queues": queuesErr,
	} {
		if err == nil || !strings.Contains(err.Error(), "was not made by NewProcessor") {
			t.Errorf("%s: got %v, want that the processor was not made", call, err)
		}
	}
	if got := p.Stats(); got.Claims != 0 || got.Limit != 0 {
		t.Errorf("Stats: got %+v, want none", got)
	}
}
