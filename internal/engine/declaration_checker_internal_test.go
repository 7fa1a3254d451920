package engine

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func TestUndeclaredConsumersAreReportedOnce(t *testing.T) {
	var log strings.Builder
	ignore := func(context.Context, testPayload) error { return nil }
	catalog := newCatalog([]*consumer{
		{Consumer: bus.Consume("known", ignore)}, {Consumer: bus.Consume("renamed", ignore, bus.Aliases("former"))},
		{Consumer: bus.Consume("missing", ignore)},
	})
	checker := declarationChecker{config: &ProcessorConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}, catalog: &catalog}
	for range 2 {
		m := &bus.Message{PayloadType: "test", Headers: map[string]string{store.ConsumersHeader: "known\nformer\nelsewhere", "k": "v"}}
		checker.checkRoutes(m)
		if len(m.Headers) != 1 {
			t.Errorf("headers: got %v, want those of the application", m.Headers)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "consumer=missing payload_type=test") {
		t.Errorf("log: got %q, want one line, for the one that is missing", got)
	}
}
