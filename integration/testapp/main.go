package testapp

import (
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, which are to leave no goroutine behind. The library
// logs into the void, unless a test gives it a logger.
func Main(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}
