package guide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// snippet: events

// Received and Sent are the events of an item in the warehouse.
type Received struct {
	Count int `json:"count"`
}

type Sent struct {
	Count int    `json:"count"`
	Order string `json:"order"`
}

func (Received) PayloadType() string { return "item.received" }
func (Sent) PayloadType() string     { return "item.sent" }

// ItemEvents returns the event types. Received was once named item.bought and counted dozens.
func ItemEvents() (*eventlog.Types, error) {
	return eventlog.NewTypes(
		eventlog.Event[Sent](),
		eventlog.Event[Received]("item.bought"),
	)
}

func (Received) Upcasters() []bus.Upcaster { return []bus.Upcaster{countSingly} }

func countSingly(_ context.Context, text []byte) ([]byte, error) {
	var old struct {
		Dozens int `json:"dozens"`
	}
	if err := json.Unmarshal(text, &old); err != nil {
		return nil, err
	}
	return json.Marshal(Received{Count: 12 * old.Dozens})
}

// end

// Warehouse keeps its stock as events.
type Warehouse struct {
	DB    *bun.DB
	Log   *eventlog.Log
	Stock *projection.Runner
}

// snippet: append

// Receive appends to the stream of an item and returns when the stock shows it. The
// transaction may write your own rows, too.
func (w *Warehouse) Receive(ctx context.Context, item string, count int) error {
	var appended eventlog.Appended
	err := w.Log.RunInTx(ctx, w.DB, func(ctx context.Context, tx bun.Tx) (err error) {
		appended, err = w.Log.Append(ctx, tx, "item-"+item, eventlog.AnyVersion, Received{Count: count})
		return err
	})
	if err != nil {
		return err
	}
	return w.Stock.WaitFor(ctx, "stock", appended) // until ctx ends
}

// end

// snippet: projection

// StockRow is a row of the projection's table.
type StockRow struct {
	bun.BaseModel `bun:"table:stock,alias:s"`

	Item  string `bun:"item,pk"`
	Count int    `bun:"count"`
}

// StockProjection is version 1. Pass it to projection.NewRunner.
func StockProjection() projection.Projection {
	return projection.Projection{
		Name: "stock",
		On: []projection.Handler{
			projection.On(func(ctx context.Context, tx bun.Tx, e Received) error { return move(ctx, tx, e.Count) }),
			projection.On(func(ctx context.Context, tx bun.Tx, e Sent) error { return move(ctx, tx, -e.Count) }),
		},
		Reset: func(ctx context.Context, tx bun.Tx) error { // for Rebuild
			_, err := tx.NewDelete().Model((*StockRow)(nil)).Where("1 = 1").Exec(ctx)
			return err
		},
	}
}

// move changes a count. The checkpoint commits with it, so no event is applied twice.
func move(ctx context.Context, tx bun.Tx, count int) error {
	m, ok := bus.MessageFromContext(ctx) // has the event
	if !ok || m.Event == nil {
		return errors.New("stock was not called with an event")
	}
	_, err := tx.NewInsert().Model(&StockRow{Item: m.Event.Stream, Count: count}).
		On("CONFLICT (item) DO UPDATE").Set("count = s.count + EXCLUDED.count").Exec(ctx)
	return err
}

// end

// StockRow2 is a row of the second version's table.
type StockRow2 struct {
	bun.BaseModel `bun:"table:stock_v2,alias:s"`

	Item  string `bun:"item,pk"`
	Count int    `bun:"count"`
	Moves int    `bun:"moves"` // new in this version
}

// StockProjection2 runs beside the first version until that is retired.
func StockProjection2() projection.Projection {
	return projection.Projection{
		Name:    "stock",
		Version: 2,
		On: []projection.Handler{
			projection.On(func(ctx context.Context, tx bun.Tx, e Received) error { return move2(ctx, tx, e.Count) }),
			projection.On(func(ctx context.Context, tx bun.Tx, e Sent) error { return move2(ctx, tx, -e.Count) }),
		},
	}
}

func move2(ctx context.Context, tx bun.Tx, count int) error {
	m, ok := bus.MessageFromContext(ctx)
	if !ok || m.Event == nil {
		return errors.New("stock was not called with an event")
	}
	_, err := tx.NewInsert().Model(&StockRow2{Item: m.Event.Stream, Count: count, Moves: 1}).
		On("CONFLICT (item) DO UPDATE").Set("count = s.count + EXCLUDED.count").Set("moves = s.moves + 1").Exec(ctx)
	return err
}

// Promote makes readers use the second version once it has caught up.
func (w *Warehouse) Promote(ctx context.Context) error {
	err := w.Stock.Promote(ctx, "stock", 2, 0)
	if late, ok := errors.AsType[*projection.LagError](err); ok {
		return fmt.Errorf("try again later, %d positions to go: %w", late.Lag, err)
	}
	return err
}

// OpenReaders makes a runner whose send-mail projection skips replayed events.
func OpenReaders(db *bun.DB, log *eventlog.Log, warnings *slog.Logger, readers ...projection.Projection) (*projection.Runner, error) {
	// snippet: skip-on-replay
	config := projection.RunnerConfig{
		Chain: middleware.Default(middleware.Options{
			Logger:     warnings, // with level Warn: each event has a line at Info
			Middleware: []bus.Middleware{middleware.SkipOnReplay("send-mail")},
		}),
	}
	// end
	return projection.NewRunner(db, log, config, readers...)
}

// snippet: replay

// TellAgain delivers old events to a new consumer.
func (w *Warehouse) TellAgain(ctx context.Context) (int, error) {
	return w.Log.Replay(ctx, w.DB, eventlog.Replay{Name: "tell-customers-first", Consumer: "tell-customer", Rate: 100})
}

// end
