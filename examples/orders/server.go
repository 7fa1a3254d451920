package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// api answers HTTP requests.
type api struct {
	db        *bun.DB
	place     placeOrder
	processor *outbox.Processor
	logger    *slog.Logger
}

func newServer(
	db *bun.DB, place placeOrder, processor *outbox.Processor, pages *console.Console, s settings,
	tracers trace.TracerProvider, logger *slog.Logger,
) *http.Server {
	a := &api{db: db, place: place, processor: processor, logger: logger}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", a.placeOrder)
	mux.HandleFunc("GET /orders/{id}", a.showOrder)
	mux.HandleFunc("GET /healthz", a.health)
	if pages != nil {
		mux.Handle("/asyncmonolith/", login{s.password}.before(pages))
	}
	return &http.Server{Handler: traced(mux, tracers.Tracer("orders")), ReadTimeout: 5 * time.Second}
}

// traced begins a span for every request, so that what it logs and what it
// produces are found together. A service of yours has otelhttp do it.
func traced(next http.Handler, tracer trace.Tracer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracer.Start(r.Context(), r.Method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// placeOrder commits an order together with the messages that follow from it.
type placeOrder func(ctx context.Context, order Order) error

// newPlaceOrder places orders with Bun, or with pgx if there is a pool.
func newPlaceOrder(db *bun.DB, pool *pgxpool.Pool, producer *outbox.Producer) placeOrder {
	if pool != nil {
		return placeInPgx(pool, producer)
	}
	return func(ctx context.Context, order Order) error {
		return producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
				return err
			}
			_, err := producer.Produce(ctx, tx, OrderPlaced{OrderID: order.ID, Item: order.Item})
			return err
		})
	}
}

func (a *api) placeOrder(w http.ResponseWriter, r *http.Request) {
	var order Order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&order); err != nil || order.Item == "" {
		http.Error(w, `want a body such as {"item": "book"}`, http.StatusBadRequest)
		return
	}
	order = Order{ID: rand.Text(), Item: order.Item, PlacedAt: time.Now().UTC()}
	if err := a.place(r.Context(), order); err != nil {
		a.fail(w, r, "place order", err)
		return
	}
	a.logger.InfoContext(r.Context(), "order placed", "order", order.ID)
	answer(w, http.StatusCreated, order)
}

func (a *api) showOrder(w http.ResponseWriter, r *http.Request) {
	var order Order
	err := a.db.NewSelect().Model(&order).Where("id = ?", r.PathValue("id")).Scan(r.Context())
	switch {
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "no such order", http.StatusNotFound)
	case err != nil:
		a.fail(w, r, "show order", err)
	default:
		answer(w, http.StatusOK, order)
	}
}

// health is for a load balancer: 503 while messages are not being consumed. Errors are in the log
// only: they name the database, its user and its host.
func (a *api) health(w http.ResponseWriter, _ *http.Request) {
	health := a.processor.Health()
	status, problem := http.StatusOK, ""
	abandoned := append([]string{}, health.Abandoned...) // in JSON a list, also an empty one
	if !health.Ready {
		status = http.StatusServiceUnavailable
	}
	if health.Err != nil {
		problem = "the database does not answer, or the processor has ended: see the log"
	}
	answer(w, status, map[string]any{"ready": health.Ready, "last_claim": health.LastClaim, "abandoned": abandoned, "error": problem})
}

func (a *api) fail(w http.ResponseWriter, r *http.Request, what string, err error) {
	a.logger.ErrorContext(r.Context(), what, "error", err)
	http.Error(w, "internal error", http.StatusInternalServerError)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}
