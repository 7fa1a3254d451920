// Orders is a small service on PostgreSQL or MariaDB: it takes orders over HTTP, and
// consumers reserve stock, charge the card and ship in the background.
//
//	go run ./examples/orders -dsn postgres://user@localhost/shop
//	go run ./examples/orders -dsn mysql://user@localhost/shop
//	go run ./examples/orders -dsn postgres://user@localhost/shop -driver pgx    # one pool of pgx: see pgx.go
//
//	curl -d '{"item": "book"}' localhost:8080/orders    # 201, the order with its id
//	curl localhost:8080/orders/ID                       # reserved_at, charged_at, shipped_at appear
//	curl localhost:8080/healthz                         # 503 while messages are not consumed
//
// With ORDERS_CONSOLE_PASSWORD set, the console is at localhost:8080/asyncmonolith/, for any name and that password.
// With OTEL_EXPORTER_OTLP_ENDPOINT set, traces go to that collector. SIGTERM and
// SIGINT stop it cleanly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	driver    string // of PostgreSQL
	password  string // of the console's operators; empty: no console
}

const usage = `Orders takes orders over HTTP and works them off in the background.

  POST /orders       {"item": "book"}: places an order
  GET  /orders/{id}  how far it is
  GET  /healthz      503 while messages are not consumed
  /asyncmonolith/    the console, if it has a password

OTEL_EXPORTER_OTLP_ENDPOINT: the collector to export traces to; none unless set
ORDERS_CONSOLE_PASSWORD: what lets operators into the console; no console unless set

Flags:
`

// parse reads the command line. What is wrong, or asked for, it writes to out.
func parse(args []string, out io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() { fmt.Fprint(out, usage); flags.PrintDefaults() }
	flags.StringVar(&s.dsn, "dsn", "", "`address` of the database; defaults to $DATABASE_URL")
	flags.StringVar(&s.driver, "driver", "database/sql", "`how` to reach PostgreSQL: database/sql or pgx")
	flags.StringVar(&s.addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.dsn == "" { // not as the flag's default, which -h prints, password and all
		s.dsn = os.Getenv("DATABASE_URL")
	}
	if s.driver != "database/sql" && s.driver != "pgx" {
		err = fmt.Errorf("-driver %q: want database/sql or pgx", s.driver)
		fmt.Fprintln(out, "orders:", err)
	}
	s.password = os.Getenv("ORDERS_CONSOLE_PASSWORD")
	if flags.NArg() > 0 {
		err = fmt.Errorf("%q: no arguments are allowed beside flags", flags.Args())
		fmt.Fprintln(out, "orders:", err)
	}
	return s, err
}

func main() {
	s, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2)
	}
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
			"  postgres://postgres@localhost/postgres or mysql://root@localhost/shop\n" +
			"To try it on a throw-away server: scripts/with-postgres.sh sh -c 'go run ./examples/orders -dsn \"$ASYNCMONOLITH_TEST_POSTGRES\"'")
	}
	var logger *slog.Logger
	app := fx.New(
		fx.NopLogger,
		fx.Supply(s),
		fx.Provide(newLogger, newPool, newDB, newShop, newPlaceOrder, newService, newConsole, newServer, newTracerProvider),
		fxmodule.Module,
		fxmodule.Migrate(),
		fxmodule.Consumers(newConsumers),
		fx.Supply(outbox.ProcessorConfig{AttemptDelay: 200 * time.Millisecond}),
		fx.Invoke(serve), // after the module: the last to start, the first to stop
		fx.Populate(&logger),
	)
	if err := app.Start(ctx); err != nil {
		return err
	}
	var failed error
	select {
	case <-ctx.Done():
	case signal := <-app.Wait(): // a processor has ended by itself; Stop says why
		if signal.ExitCode != 0 {
			failed = fmt.Errorf("shut down with exit code %d", signal.ExitCode)
		}
	}
	logger.Info("stopping")
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), app.StopTimeout())
	defer cancel()
	err := errors.Join(failed, app.Stop(stopping))
	logger.Info("stopped", "error", err)
	return err
}

// serve listens as long as the application runs.
func serve(lifecycle fx.Lifecycle, s settings, server *http.Server, logger *slog.Logger) {
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
		OnStop: func(ctx context.Context) error {
			// A client that takes its time must not take it from the consumers.
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			if err := server.Shutdown(ctx); err != nil {
				return server.Close()
			}
			return nil
		},
	})
}
