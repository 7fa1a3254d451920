package guide_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/admin"

	_ "modernc.org/sqlite"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
)

// the driver "sqlite"

func TestMain(m *testing.M) {
	if os.Getenv(managerFile) != "" {
		fmt.Fprintln(os.Stderr, runManager())
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// cards is a card service that answers with what the test sets.
type cards struct {
	err  error
	keys []string
}

func (c *cards) Charge(_ context.Context, key, _ string) error {
	c.keys = append(c.keys, key)
	return c.err
}

type fixture struct {
	*bustest.Kit
	db     *bun.DB
	shop   *guide.Shop
	cards  *cards
	poison *poison.Store
	admin  *admin.Client
	log    *bytes.Buffer

	reports []string
}

// openMemory opens a database in memory that is the test's own.
func openMemory(t *testing.T) *bun.DB {
	t.Helper()
	conns, err := sql.Open("sqlite", "file:/"+url.PathEscape(t.Name())+"?vfs=memdb&_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conns.Close() })
	return bun.NewDB(conns, sqlitedialect.New())
}

// open makes the shop and a kit that runs it, with the middleware of the guide.
func open(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{db: openMemory(t), cards: new(cards), log: new(bytes.Buffer)}
	if _, err := f.db.NewCreateTable().Model((*guide.Order)(nil)).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.shop = &guide.Shop{DB: f.db, Cards: f.cards, Open: func() bool { return true }, Write: func(_ context.Context, report string) error {
		f.reports = append(f.reports, report)
		return nil
	}}
	logger := slog.New(slog.NewTextHandler(f.log, nil))
	f.Kit = bustest.KitConfig{
		Producer: outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{guide.StampTenant}},
		Processor: outbox.ProcessorConfig{Middleware: middleware.Default(middleware.Options{
			Logger: slog.New(slog.DiscardHandler), OnPoison: guide.Alarm(logger), Middleware: []bus.Middleware{guide.RestoreTenant},
		})},
	}.NewKit(t, f.db, f.shop.Consumers()...)
	f.shop.Producer = f.Producer
	var poisonErr, adminErr error
	f.poison, poisonErr = poison.NewStore(f.Registry)
	f.admin, adminErr = admin.NewClient(f.Registry)
	if err := errors.Join(poisonErr, adminErr); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestProducing(t *testing.T) {
	f := open(t)
	ctx := guide.WithTenant(f.Context(), "acme")
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(guide.PlaceOrderIn(ctx, tx, f.Producer, guide.Order{ID: "o-1"}), tx.Commit(),
		guide.PlaceOrder(ctx, f.db, f.Producer, guide.Order{ID: "o-2"}),
		guide.PlaceOrders(ctx, f.db, f.Producer, []guide.Order{{ID: "o-3"}, {ID: "o-4"}}),
		guide.RemindLater(ctx, f.db, f.Producer, "o-1"), guide.RemindLater(ctx, f.db, f.Producer, "o-1"))
	if err != nil {
		t.Fatal(err)
	}
	if orders, reminders := bustest.Payloads[guide.OrderPlaced](t, f), bustest.Payloads[guide.ReminderDue](t, f); len(orders) != 4 ||
		len(reminders) != 1 {
		t.Errorf("produced: got %v and %v, want four orders and one reminder", orders, reminders)
	}
	if m := bustest.RequireProduced[guide.OrderPlaced](t, f, nil); m.Headers["tenant"] != "acme" {
		t.Errorf("headers: got %v, want the tenant", m.Headers)
	}
	f.DrainUntilIdle()
	if n, err := f.db.NewSelect().Model((*guide.Order)(nil)).Where("reserved").Count(ctx); n != 2 || err != nil {
		t.Errorf("reserved: got %d, %v, want the two orders that there are", n, err)
	}
}

func TestOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		closed bool
		want   bus.Outcome
		delay  time.Duration
	}{
		"done":      {want: bus.Done},
		"closed":    {closed: true, want: bus.Snoozed, delay: time.Hour},
		"busy":      {err: &guide.BusyError{For: time.Minute}, want: bus.Retried, delay: time.Minute},
		"declined":  {err: guide.ErrDeclined, want: bus.Poisoned},
		"no order":  {err: guide.ErrNoOrder, want: bus.Discarded},
		"any other": {err: errors.New("no luck"), want: bus.Retried},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			f.cards.err = test.err
			f.shop.Open = func() bool { return !test.closed }
			produced := f.Produce(guide.OrderPlaced{OrderID: "o-1"})
			v := f.ProcessNext("charge-card").Outcome
			if v.Outcome != test.want || test.delay > 0 && v.Delay != test.delay {
				t.Errorf("outcome: got %+v, want %s", v, test.want)
			}
			if !test.closed && f.cards.keys[0] != produced.MessageID.String() {
				t.Errorf("key: got %q, want the message's id", f.cards.keys[0])
			}
			if alarmed := strings.Contains(f.log.String(), "message poisoned for good"); alarmed != (test.want == bus.Poisoned) {
				t.Errorf("alarm: got %t: %s", alarmed, f.log)
			}
		})
	}
}

func TestScheduling(t *testing.T) {
	f := open(t)
	for range 2 { // two boots
		if err := guide.ScheduleReports(f.Context(), f.db, f.Scheduler); err != nil {
			t.Fatal(err)
		}
	}
	bustest.RequireScheduled[guide.ReportDue](t, f, nil)
	named, _, err := f.Scheduler.List(f.Context(), f.db, schedule.Filter{Tag: "reports"}, admin.Page{})
	if err != nil || len(named) != 2 {
		t.Fatalf("schedules after two boots: got %+v, %v, want 2", named, err)
	}
	s := named[0]
	if err := guide.HoldReports(f.Context(), f.db, f.Scheduler); err != nil {
		t.Fatal(err)
	}
	f.Advance(7 * 24 * time.Hour)
	f.DrainUntilIdle()
	if len(f.reports) != 2 {
		t.Errorf("reports in a week: got %v, want the two that were asked for", f.reports)
	}
	if err := f.Scheduler.Resume(f.Context(), f.db, s.ID); err != nil {
		t.Fatal(err)
	}
	f.Advance(7 * 24 * time.Hour)
	if f.DrainUntilIdle(); len(f.reports) != 7 {
		t.Errorf("reports after another week: got %v, want 5 more", f.reports)
	}
	if err := guide.ScheduleReport(f.Context(), f.db, f.Scheduler); err != nil {
		t.Error(err)
	}
}

func TestPreview(t *testing.T) {
	from := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fires, err := guide.Preview("0 0 12 L * *", "Europe/Amsterdam", from)
	if err != nil || len(fires) != 5 || fires[1].Format(time.RFC3339) != "2026-02-28T12:00:00+01:00" {
		t.Errorf("got %v, %v, want the last days of five months", fires, err)
	}
	if _, err := guide.Preview("0 0 25 * * *", "Nowhere", from); err == nil {
		t.Error("nonsense: got no error")
	}
}

// snippet: with-message

// TestDeclined calls a consumer as a function, with its own message.
func TestDeclined(t *testing.T) {
	cards := &cards{err: guide.ErrDeclined}
	shop := &guide.Shop{Cards: cards, Open: func() bool { return true }}
	ctx := bus.ContextWithMessage(t.Context(), &bus.Message{ID: uuid.UUID{15: 1}, Attempt: 1})
	err := shop.ChargeCard(ctx, guide.OrderPlaced{OrderID: "o-1"})
	if bus.OutcomeOf(err).Outcome != bus.Condemned { // poisoned once the processor has stored it
		t.Errorf("declined: got %v, want it poisoned", err)
	}
}

// end

// TestExpressionsOfTheGuide reads them from its table.
func TestExpressionsOfTheGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllSubmatch(text, -1)
	for _, expression := range found {
		if _, err := cron.Parse(string(expression[1])); err != nil {
			t.Errorf("%s: %v", expression[1], err)
		}
	}
	if len(found) < 4 {
		t.Errorf("expressions: got %d, want those of the table", len(found))
	}
}

func TestPoisonedGroups(t *testing.T) {
	f := open(t)
	ctx := f.Context()
	f.cards.err = guide.ErrDeclined
	for i := range 3 {
		f.Produce(guide.OrderPlaced{OrderID: fmt.Sprint("o-", i)})
	}
	f.DrainUntilIdle()
	messages, _, err := f.poison.List(ctx, f.db, poison.Filter{}, admin.Page{Brief: true})
	if err != nil || len(messages) != 3 {
		t.Fatalf("poisoned: got %d, %v, want 3", len(messages), err)
	}
	var out bytes.Buffer
	if err := guide.ShowGroups(ctx, f.db, f.poison, &out); err != nil ||
		!strings.HasPrefix(out.String(), "charge-card "+messages[0].Fingerprint+" 3 from") {
		t.Errorf("groups: got %v, %s", err, &out)
	}
	out.Reset()
	if err := guide.RequeueGroup(ctx, f.db, f.poison, "gone", &out); err != nil || out.String() != "" {
		t.Errorf("of nothing: got %v, %s", err, &out)
	}
	f.Advance(time.Second)
	if err := guide.RequeueGroup(ctx, f.db, f.poison, messages[0].Fingerprint, &out); err != nil ||
		!strings.Contains(out.String(), "3 messages, 0 conflicts, 0 unhandled\n3 requeued\n") {
		t.Errorf("requeue: got %v, %s", err, &out)
	}
}

func TestService(t *testing.T) {
	f := open(t)
	f.cards.err = guide.ErrDeclined
	f.Produce(guide.OrderPlaced{OrderID: "o-1"})
	f.DrainUntilIdle()
	f.Advance(time.Second) // a plan has what was poisoned before it
	service, err := guide.OpenService(f.db, f.Registry)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := guide.AtTheService(f.Context(), service, &out); err != nil ||
		!strings.Contains(out.String(), "critical charge-card 1 poisoned message, the oldest for ") ||
		!strings.HasSuffix(out.String(), "1 messages\nwaiting\n") {
		t.Errorf("got %v, %s", err, &out)
	}
}

// team lets one in as a member of a team, and nobody who has no name.
type team string

func (of team) User(r *http.Request) (guide.User, error) {
	name, _, ok := r.BasicAuth()
	if !ok {
		return guide.User{}, errors.New("nobody is logged in")
	}
	return guide.User{Email: name, Team: string(of)}, nil
}

func TestConsole(t *testing.T) {
	f := open(t)
	service, err := guide.OpenService(f.db, f.Registry)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(handler http.Handler, path, name string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "https://shop.example.com"+path, nil)
		if name != "" {
			r.SetBasicAuth(name, "")
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(f.Context()))
		return w
	}
	for of, may := range map[team]int{"support": http.StatusForbidden, "on-call": http.StatusOK, "guests": http.StatusForbidden} {
		pages, err := guide.OpenConsole(service, of)
		if err != nil {
			t.Fatal(err)
		}
		mux, router := http.NewServeMux(), chi.NewRouter()
		guide.MountConsole(mux, pages)
		guide.MountConsoleWithChi(router, pages)
		for name, handler := range map[string]http.Handler{"net/http": mux, "chi": router} {
			if w := ask(handler, "/asyncmonolith/", ""); w.Code != http.StatusSeeOther ||
				w.Header().Get("Location") != "/login?next=%2Fasyncmonolith%2F" {
				t.Errorf("%s: nobody: got %d to %q, want to be sent to the login", name, w.Code, w.Header().Get("Location"))
			}
			if w := ask(handler, "/asyncmonolith/", "ada"); w.Code != http.StatusOK && of != "guests" {
				t.Errorf("%s: %s: overview: got %d", name, of, w.Code)
			}
			if w := ask(handler, "/asyncmonolith/confirm?do=pause&consumer=charge-card", "ada"); w.Code != may {
				t.Errorf("%s: %s: pause: got %d, want %d", name, of, w.Code, may)
			}
		}
	}
}

func TestOperating(t *testing.T) {
	f := open(t)
	ctx := f.Context()
	f.cards.err = guide.ErrDeclined
	for i := range 3 {
		f.Produce(guide.OrderPlaced{OrderID: fmt.Sprint("o-", i)})
	}
	f.DrainUntilIdle()
	var out bytes.Buffer
	if err := guide.ShowPoisoned(ctx, f.db, f.poison, &out); err != nil || strings.Count(out.String(), "permanent error 1 failed runs") != 3 {
		t.Errorf("poisoned: got %v, %s", err, &out)
	}
	f.cards.err = nil
	messages, _, err := f.poison.List(ctx, f.db, poison.Filter{}, admin.Page{})
	if err != nil {
		t.Fatal(err)
	}
	if result, err := guide.RequeuePoisoned(ctx, f.db, f.poison, messages[0].ID); err != nil || result.Requeued != 2 {
		t.Errorf("requeue: got %+v, %v, want the other two", result, err)
	}
	err = guide.Maintain(ctx, f.db, f.admin, func() error {
		f.Advance(2 * time.Hour)
		if runs := f.DrainUntilIdle(); len(runs) != 0 {
			t.Errorf("runs while it is paused: got %d, want none", len(runs))
		}
		out.Reset()
		return guide.Why(ctx, f.db, f.admin, &out)
	})
	if err != nil || strings.Count(out.String(), " paused Consumer ") != 3 {
		t.Errorf("why: got %v, %s", err, &out)
	}
	waiting, _, err := f.admin.List(ctx, f.db, admin.Filter{Consumer: "charge-card"}, admin.Page{})
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := guide.TakeBack(ctx, f.db, f.admin, []int64{waiting[0].ID, 9999}, &out); err != nil ||
		out.String() != "1 cancelled, too late for [], gone before [9999]\n" {
		t.Errorf("take back: got %v, %s", err, &out)
	}
	if runs := f.DrainUntilIdle(); len(runs) != 2 {
		t.Errorf("runs after the resume: got %d, want 2", len(runs))
	}
}

func TestWiring(t *testing.T) {
	f := open(t)
	if _, _, err := guide.Wire(f.db, f.Registry, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

func TestRenaming(t *testing.T) {
	f := open(t)
	var tracked []guide.OrderShipped
	kit := bustest.KitConfig{Registry: bus.RegistryConfig{Tables: bus.Tables{Prefix: "renamed_"}}}.NewKit(t, f.db,
		guide.NewTracking(func(_ context.Context, e guide.OrderShipped) error { tracked = append(tracked, e); return nil }))
	kit.Produce(guide.OrderShipped{OrderID: "o-1", Carrier: "post"})
	kit.Produce(guide.OrderShipped{OrderID: "o-2"})
	if _, err := f.db.ExecContext(t.Context(),
		`UPDATE renamed_consumer_messages SET consumer_type = 'follow-parcel', payload_type = 'order.sent', payload = '{"order_id":"o-1"}' WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	kit.DrainUntilIdle()
	if len(tracked) != 2 || tracked[0] != (guide.OrderShipped{OrderID: "o-1"}) {
		t.Errorf("tracked: got %+v, want both", tracked)
	}
}
