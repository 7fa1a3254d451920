// Command asyncmonolith operates the messages of a database: who runs and what waits, what fails and
// why, and changes that are previewed, paced and can be undone. See docs/cli.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], newTerminal())
	stop()
	os.Exit(code)
}
