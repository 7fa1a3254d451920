package otel_test

import (
	"strings"
	"testing"

	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
)

func TestZeroConfigWorks(t *testing.T) {
	t.Parallel()
	if _, err := amotel.New(amotel.Config{}); err != nil {
		t.Errorf("zero config: got %v, want no error", err)
	}
}

func TestUnknownSpanRelationIsRefused(t *testing.T) {
	t.Parallel()
	_, err := amotel.New(amotel.Config{SpanRelation: amotel.LinkOnly + 1})
	if err == nil || !strings.Contains(err.Error(), "Config.SpanRelation 2") {
		t.Errorf("SpanRelation 2: got %v, want an error that names it", err)
	}
}
