package otel_test

import (
	"testing"

	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
)

func TestZeroConfigWorks(t *testing.T) {
	t.Parallel()
	if _, err := amotel.NewTelemetry(amotel.TelemetryConfig{}); err != nil {
		t.Errorf("zero config: got %v, want no error", err)
	}
}
