package otel_test

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(runRole(role))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}

// compare checks a text against a golden file. After a change that is meant, run
// the test with -update.
func compare(t *testing.T, file, got string) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		testapp.OK(t, os.WriteFile(file, []byte(got), 0o644))
	}
	text := testapp.Must[[]byte](t)(os.ReadFile(file))
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(text), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if i >= len(gotLines) || i >= len(wantLines) || gotLines[i] != wantLines[i] {
			t.Fatalf("%s, line %d: got\n%s\nwant\n%s", file, i+1, strings.Join(gotLines[min(i, len(gotLines)):], "\n"),
				strings.Join(wantLines[min(i, len(wantLines)):], "\n"))
		}
	}
}
