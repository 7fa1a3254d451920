package testapp

import (
	"log/slog"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, which are to leave no goroutine behind. The library logs into the void, unless a
// test gives it a logger.
func Main(m goleak.TestingM) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}
