// Orders is a small service on PostgreSQL: it takes orders over HTTP, and
// consumers reserve stock, charge the card and ship in the background.
//
//	go run ./examples/orders -dsn 'postgres://user@localhost/shop?default_query_exec_mode=exec'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// settings come from the command line.
type settings struct {
	dsn, addr string
}

func main() {
	var s settings
	flag.StringVar(&s.dsn, "dsn", os.Getenv("DATABASE_URL"), "PostgreSQL to use; defaults to $DATABASE_URL")
	flag.StringVar(&s.addr, "addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and then stops in order: no more requests, no more
// claims, running consumers finish, the database closes.
func run(ctx context.Context, s settings) error {
	if s.dsn == "" {
		return errors.New("no database: give -dsn or set DATABASE_URL, for example to\n" +
			"  postgres://postgres@localhost/postgres?default_query_exec_mode=exec\n" +
			"To try it on a throw-away server: scripts/with-postgres.sh sh -c 'go run ./examples/orders -dsn \"$ASYNCMONOLITH_TEST_POSTGRES\"'")
	}
	app := fx.New(
		fx.NopLogger,
		fx.Supply(s),
		fx.Provide(newLogger, newDB, newShop, newServer, newTracerProvider),
		fxmodule.Module,
		fxmodule.Migrate(),
		fxmodule.Consumers(newConsumers),
		fx.Supply(outbox.ProcessorConfig{AttemptDelay: 200 * time.Millisecond}),
		fx.Invoke(createTables, connect, serve),
	)
	if err := app.Start(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case signal := <-app.Wait():
		if signal.ExitCode != 0 {
			defer os.Exit(signal.ExitCode)
		}
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), app.StopTimeout())
	defer cancel()
	return app.Stop(stopping)
}

// serve listens as long as the application runs. It is started last and stopped
// first.
func serve(lifecycle fx.Lifecycle, s settings, server *http.Server, logger *slog.Logger, _ *outbox.Processor) {
	lifecycle.Append(fx.Hook{
		OnStart: func(context.Context) error {
			listener, err := net.Listen("tcp", s.addr)
			if err != nil {
				return err
			}
			logger.Info("listening", "addr", listener.Addr().String())
			go func() { // ends with Shutdown
				if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
					logger.Error("serve", "error", err)
				}
			}()
			return nil
		},
		OnStop: server.Shutdown,
	})
}
