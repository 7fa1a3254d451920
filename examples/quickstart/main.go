// The quickstart places an order in a transaction and lets consumers react to
// it. It needs no server: the database is a SQLite file in a temporary folder.
package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"
	_ "modernc.org/sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// parts are what the story is told with; fx fills them in.
type parts struct {
	fx.In

	DB        *bun.DB
	Producer  *outbox.Producer
	Scheduler *schedule.Scheduler
	Poisoned  *poison.Store
	Shop      *Shop
}

// run tells the whole story to out. It takes five seconds; after a minute it fails.
func run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "quickstart")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := openDB(ctx, filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	spans := tracetest.NewInMemoryExporter()
	story := newStory(out)

	var p parts
	app := fx.New(
		fx.NopLogger, fx.Supply(db, story), fx.Provide(NewShop), wiring(), tracing(spans),
		fx.Invoke(func(filled parts) { p = filled }),
	)
	if err := app.Start(ctx); err != nil {
		return err
	}
	told := tell(ctx, p, story)
	if err := errors.Join(told, app.Stop(ctx)); err != nil {
		return err
	}
	if err := story.printEnd(ctx, db); err != nil {
		return err
	}
	printTraces(out, spans.GetSpans())
	return nil
}

// wiring is everything the application tells AsyncMonolith.
func wiring() fx.Option {
	// snippet: wiring
	return fx.Options(
		fxmodule.Module,
		fxmodule.Migrate(),
		fxmodule.Consumers(NewOrderConsumers, NewFeedbackConsumer, NewStockConsumer),
		fx.Provide(
			func(story *Story) fxmodule.ConsumeMiddleware { return fxmodule.ConsumeMiddleware{story.tellOutcome} },
			func() fxmodule.ProduceMiddleware { return fxmodule.ProduceMiddleware{stampTenant} },
		),
		fx.Supply(
			outbox.ProcessorConfig{AttemptDelay: 200 * time.Millisecond},
			slog.New(slog.DiscardHandler), // keep logs out of the example's output
		),
	)
	// end
}

// tracing provides what AsyncMonolith makes its spans with.
func tracing(spans sdktrace.SpanExporter) fx.Option {
	return fx.Provide(func() trace.TracerProvider { // the interface: fx matches by the exact type
		return sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)) // yours exports to a collector
	})
}

func openDB(ctx context.Context, path string) (*bun.DB, error) {
	conns, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(15000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	db := bun.NewDB(conns, sqlitedialect.New())
	if _, err := db.NewCreateTable().Model((*Order)(nil)).Exec(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}
