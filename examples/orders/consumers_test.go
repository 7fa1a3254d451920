package main

import (
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"go.opentelemetry.io/otel/trace/noop"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// newTestShop makes the shop on a database in memory, and a kit that runs its
// consumers one message at a time. The payment provider is never busy.
func newTestShop(t *testing.T) (*shop, *bustest.Kit) {
	t.Helper()
	conns, err := sql.Open("sqlite", "file:/"+url.PathEscape(t.Name())+"?vfs=memdb&_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conns.Close() })
	db := bun.NewDB(conns, sqlitedialect.New())
	if err := createTables(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	s := newShop(db, nil)
	s.busy = func() bool { return false }
	kit := bustest.NewKit(t, db, newConsumers(s)...)
	s.producer = kit.Producer
	return s, kit
}

func (s *shop) insertOrder(t *testing.T, id string) OrderPlaced {
	t.Helper()
	if _, err := s.db.NewInsert().Model(&Order{ID: id, Item: "book"}).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	return OrderPlaced{OrderID: id, Item: "book"}
}

// state is what consumers change: everything but the instants.
type state struct{ Reserved, Charges, ReservedAt, ChargedAt, ShippedAt int }

func (s *shop) state(t *testing.T) (got state) {
	t.Helper()
	err := s.db.NewRaw(`SELECT (SELECT coalesce(sum(reserved), 0) FROM stock) AS reserved, (SELECT count(*) FROM charges) AS charges,
		(SELECT count(reserved_at) FROM orders) AS reserved_at, (SELECT count(charged_at) FROM orders) AS charged_at,
		(SELECT count(shipped_at) FROM orders) AS shipped_at`).Scan(t.Context(), &got)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAnOrderIsReservedChargedAndShipped(t *testing.T) {
	t.Parallel()
	s, kit := newTestShop(t)
	kit.Produce(s.insertOrder(t, "o-1"))
	if runs := kit.DrainUntilIdle(); len(runs) != 3 {
		t.Errorf("runs: got %+v, want reserve-stock, charge-card and ship", runs)
	}
	if got, want := s.state(t), (state{1, 1, 1, 1, 1}); got != want {
		t.Errorf("state: got %+v, want %+v", got, want)
	}
}

func TestABusyProviderIsAskedAgain(t *testing.T) {
	t.Parallel()
	s, kit := newTestShop(t)
	s.busy = func() bool { return true }
	kit.Produce(s.insertOrder(t, "o-1"))
	first := kit.ProcessNext("charge-card")
	if first.Outcome.Outcome != bus.Retried || !errors.Is(first.Outcome.Err, errBusy) {
		t.Errorf("first attempt: got %+v, want it retried", first.Outcome)
	}
	bustest.RequireNotProduced[OrderCharged](t, kit, nil)
	s.busy = func() bool { return false }
	kit.Advance(first.Outcome.Delay)
	kit.ProcessNext("charge-card")
	bustest.RequireProduced(t, kit, func(e OrderCharged) bool { return e.OrderID == "o-1" })
}

func TestAProviderThatStaysBusyIsGivenUp(t *testing.T) {
	t.Parallel()
	s, kit := newTestShop(t)
	s.busy = func() bool { return true }
	kit.Produce(s.insertOrder(t, "o-1"))
	for range 20 {
		kit.Advance(kit.ProcessNext("charge-card").Outcome.Delay)
	}
	poisoned := bustest.RequirePoisoned(t, kit, "charge-card", func(e OrderPlaced) bool { return e.OrderID == "o-1" })
	if poisoned.Attempts != 20 {
		t.Errorf("attempts: got %d, want 20", poisoned.Attempts)
	}
}

// TestConsumersMayRunTwice is why a repeated delivery charges nobody twice.
func TestConsumersMayRunTwice(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(*bustest.Kit, func() any){
		"run twice":       (*bustest.Kit).RequireIdempotent,
		"lost and redone": (*bustest.Kit).RequireRedeliverable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, kit := newTestShop(t)
			kit.Produce(s.insertOrder(t, "o-1"))
			check(kit, func() any { return s.state(t) })
			if got, want := s.state(t), (state{1, 1, 1, 1, 1}); got != want {
				t.Errorf("state: got %+v, want %+v", got, want)
			}
		})
	}
}

func TestPlacingAnOrderProduces(t *testing.T) {
	t.Parallel()
	s, kit := newTestShop(t)
	place := newPlaceOrder(s.db, nil, kit.Producer)
	server := newServer(s.db, place, nil, nil, settings{}, noop.NewTracerProvider(), slog.New(slog.DiscardHandler))
	answer := httptest.NewRecorder()
	server.Handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders",
		strings.NewReader(`{"item": "book"}`)))
	if answer.Code != http.StatusCreated {
		t.Fatalf("POST /orders: got %d %s, want 201", answer.Code, answer.Body)
	}
	placed := bustest.RequireProduced(t, kit, func(e OrderPlaced) bool { return e.Item == "book" }).Value.(OrderPlaced)
	if !strings.Contains(answer.Body.String(), placed.OrderID) {
		t.Errorf("answer: got %s, want the order %s", answer.Body, placed.OrderID)
	}
	refused := httptest.NewRecorder()
	server.Handler.ServeHTTP(refused, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader(`{}`)))
	if n := len(bustest.Payloads[OrderPlaced](t, kit)); refused.Code != http.StatusBadRequest || n != 1 {
		t.Errorf("an order of nothing: got %d and %d orders placed, want 400 and still 1", refused.Code, n)
	}
}

// TestHealthHidesTheDatabase: anyone may ask, and the driver's error has the user, host and database.
func TestHealthHidesTheDatabase(t *testing.T) {
	t.Parallel()
	db, err := openPostgres("postgres://keeper:secret@127.0.0.1:1/vault")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	registry, err := bus.NewRegistry(newConsumers(newShop(db, nil))...)
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{StartTimeout: time.Millisecond, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := processor.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "keeper") {
		t.Fatalf("run: got %v, want the driver's error", err)
	}
	server := newServer(db, nil, processor, nil, settings{}, noop.NewTracerProvider(), quiet)
	answer := httptest.NewRecorder()
	server.Handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
	body := answer.Body.String()
	if answer.Code != http.StatusServiceUnavailable || !strings.Contains(body, `"error":"the database does not answer`) {
		t.Errorf("GET /healthz: got %d %s, want 503 and the reason", answer.Code, body)
	}
	for _, secret := range []string{"keeper", "127.0.0.1", "vault"} {
		if strings.Contains(body, secret) {
			t.Errorf("GET /healthz: got %s, want no %q", body, secret)
		}
	}
}
