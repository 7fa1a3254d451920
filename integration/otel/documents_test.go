package otel_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsNameEverything looks up each metric, attribute and span of the
// golden files in docs/reference/metrics.md.
func TestDocumentsNameEverything(t *testing.T) {
	t.Parallel()
	document := string(must(os.ReadFile("../../docs/reference/metrics.md"))(t))
	name := regexp.MustCompile(`(?m)\b(?:messaging|asyncmonolith|error)\.[a-z_.]+\b`)
	span := regexp.MustCompile(`(?m)^\d+\. (\w+)`)
	found := map[string]bool{}
	for _, file := range []string{"testdata/metrics.golden", "testdata/spans.golden"} {
		text := string(must(os.ReadFile(file))(t))
		for _, n := range name.FindAllString(text, -1) {
			found[n] = true
		}
		for _, match := range span.FindAllStringSubmatch(text, -1) {
			if match[1] != "app" {
				found[match[1]+" {payload type}"] = true
			}
		}
	}
	if len(found) < 30 {
		t.Fatalf("names in the golden files: got %d, want 30 at least", len(found))
	}
	for n := range found {
		if n == "asyncmonolith.permanent" || n == "asyncmonolith.too_large" { // values of error.type
			n = strings.TrimPrefix(n, "asyncmonolith.")
		}
		if !strings.Contains(document, "`"+n+"`") {
			t.Errorf("docs/reference/metrics.md: got no `%s`, want it explained", n)
		}
	}
}
