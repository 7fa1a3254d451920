package schedule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Tests of schedules that must not hold back the others.

// yearly writes schedules that are due, with payloads of these ids.
func yearly(ctx context.Context, a *app, ids ...string) {
	a.Helper()
	for _, id := range ids {
		testapp.Must[int64](a.T)(a.Scheduler().Create(ctx, a.DB, order{ID: id}, "@yearly", "UTC"))
	}
	makeDue(a, time.Second)
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	return ids
}

// layered gives the application a producer with one layer.
func layered(a *app, layer bus.ProduceMiddleware) {
	a.Producer = testapp.Must[*outbox.Producer](a.T)(outbox.NewProducer(a.Registry,
		outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{layer}}))
}

// TestASlowProduceLayerDoesNotBlockSchedules takes longer for a batch than a server
// lets a transaction be idle for a client that may have vanished.
// Promise: schedule-blocked
func TestASlowProduceLayerDoesNotBlockSchedules(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n, calls atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		layered(a, func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, b *bus.Batch) error {
				calls.Add(1)
				<-time.After(5200 * time.Millisecond)
				return next(ctx, b)
			}
		})
		yearly(t.Context(), a, numbered(100)...)
		fireSchedules(t.Context(), a, schedule.ProcessorConfig{})
		testapp.Eventually(t, "all schedules fire", func() bool { return len(a.Pending()) == 100 })
		if got := calls.Load(); got > 3 {
			t.Errorf("calls of the layer: got %d, want one, or a few", got)
		}
	})
}

// TestSchedulesThatTakeTooLongTogetherFireInParts has a layer that takes 300 ms for
// each message, and never ends for one of them.
func TestSchedulesThatTakeTooLongTogetherFireInParts(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var n atomic.Int64
		a := newApp(testapp.Counting("c", &n))
		a.DB.SetMaxOpenConns(1) // SQLite would wait for its lock on the real clock
		layered(a, bus.PerMessage(func(ctx context.Context, m *bus.Message) error {
			wait := 300 * time.Millisecond
			if strings.Contains(string(m.Payload), `"37"`) {
				wait = time.Hour
			}
			select {
			case <-time.After(wait):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
		for _, id := range numbered(60) {
			testapp.Must[int64](t)(a.Scheduler().Upsert(ctx, a.DB, order{ID: id}, "@every 1h", "UTC", schedule.Name(id)))
		}
		<-time.After(time.Hour + time.Second)
		begun := time.Now()
		fireSchedules(ctx, a, schedule.ProcessorConfig{})
		testapp.Sooner(t, "the 59 others fire", func() bool { return len(a.Pending()) == 59 })
		if took := time.Since(begun); took > 4*time.Minute {
			t.Errorf("until the 59 others have fired: got %s, want minutes at most", took)
		}
		testapp.Sooner(t, "the one is marked", func() bool {
			got := rowsOf(t, a.Scheduler(), a.DB, schedule.Filter{Name: "37"})[0]
			return strings.Contains(got.LastError, "took longer than 10s")
		})
	})
}

// hanging is a payload that may hang when it is decoded.
type hanging struct{ ID string }

func (hanging) PayloadType() string { return "hanging" }

var decoding atomic.Pointer[func(id string)]

func (h *hanging) UnmarshalJSON(data []byte) error {
	type plain hanging
	err := json.Unmarshal(data, (*plain)(h))
	if decode := decoding.Load(); decode != nil {
		(*decode)(h.ID)
	}
	return err
}

// TestAScheduleThatHangsDoesNotStopTheOthers has a layer, and then a payload, that never returns for one of five schedules.
func TestAScheduleThatHangsDoesNotStopTheOthers(t *testing.T) {
	for _, where := range []string{"layer", "payload"} {
		t.Run(where, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				release, bad := make(chan struct{}), where+"3"
				a := newApp(bus.Consume("c", func(context.Context, hanging) error { return nil }))
				a.DB.SetMaxOpenConns(1) // SQLite would wait for its lock on the real clock
				for i := range 5 {
					id := fmt.Sprint(where, i)
					testapp.Must[int64](t)(a.Scheduler().Upsert(ctx, a.DB, hanging{ID: id}, "@every 1m", "UTC", schedule.Name(id)))
				}
				hang := func(id string) {
					if id == bad {
						<-release
					}
				}
				if where == "layer" {
					layered(a, bus.PerMessage(func(_ context.Context, m *bus.Message) error {
						var h hanging
						err := json.Unmarshal(m.Payload, &h)
						hang(h.ID)
						return err
					}))
				} else {
					decoding.Store(&hang)
					defer decoding.Store(nil)
				}
				fireSchedules(ctx, a, schedule.ProcessorConfig{})
				<-time.After(30 * time.Minute)
				for i := range 5 {
					id := fmt.Sprint(where, i)
					got := rowsOf(t, a.Scheduler(), a.DB, schedule.Filter{Name: id})[0]
					n := a.Count("SELECT count(*) FROM consumer_messages WHERE payload LIKE ?", "%"+id+"%")
					switch {
					case id == bad && (n != 0 || !strings.Contains(got.LastError, "has not returned")):
						t.Errorf("the schedule that hangs: got %d messages and error %q", n, got.LastError)
					case id != bad && (n < 20 || got.LastError != ""):
						t.Errorf("schedule %s: got %d messages in half an hour and error %q, want about 29 and none", id, n, got.LastError)
					}
				}
				close(release)
				testapp.Sooner(t, "it fires once its call has returned", func() bool {
					return a.Count("SELECT count(*) FROM consumer_messages WHERE payload LIKE ?", "%"+bad+"%") > 0
				})
			})
		})
	}
}

// refuseChanges has the database refuse what is written to the schedule of one
// payload.
func refuseChanges(a *app, id, sqlState string) {
	a.Helper()
	match := fmt.Sprintf("'%%\"%s\"%%'", id)
	switch a.DB.Dialect().Name() {
	case dialect.PG:
		a.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.payload LIKE ` + match + ` THEN RAISE EXCEPTION 'no changes here' USING ERRCODE = '` + sqlState + `'; END IF; RETURN NEW; END $$`)
		a.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON scheduled_messages FOR EACH ROW EXECUTE FUNCTION refuse()`)
	case dialect.MySQL:
		a.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON scheduled_messages FOR EACH ROW BEGIN
			IF NEW.payload LIKE ` + match + ` THEN SIGNAL SQLSTATE '` + sqlState + `' SET MESSAGE_TEXT = 'no changes here'; END IF; END`)
	default:
		a.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON scheduled_messages WHEN NEW.payload LIKE ` + match +
			` BEGIN SELECT RAISE(ABORT, 'no changes here'); END`)
	}
}

// TestAScheduleThatRefusesChangesDoesNotDelayOthers has one that can neither fire nor be
// marked as one that cannot, and is due before all others.
// Promise: schedule-blocked
func TestAScheduleThatRefusesChangesDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	for name, states := range map[string]map[dialect.Name]string{
		"as the application's error": {dialect.PG: "P0001", dialect.MySQL: "45000", dialect.SQLite: "-"},
		"as the database's error":    {dialect.PG: "57014", dialect.MySQL: "40001"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				state := states[db.Dialect().Name()]
				if state == "" {
					return // a trigger cannot say so
				}
				var n atomic.Int64
				a := testapp.New(t, db, testapp.Counting("c", &n))
				yearly(t.Context(), a, "bad")
				refuseChanges(a, "bad", state)
				for _, id := range numbered(20) {
					testapp.Must[int64](t)(a.Scheduler().Create(t.Context(), a.DB, order{ID: id}, "* * * * * *", "UTC"))
				}
				log := &testapp.Lines{}
				fireSchedules(t.Context(), a, schedule.ProcessorConfig{Logger: log.Logger()})
				testapp.Eventually(t, "the others fire, again and again", func() bool { return len(a.Pending()) >= 80 })
				if !strings.Contains(log.String(), "no changes here") {
					t.Errorf("log: got %s, want the reason", log)
				}
				if got := a.Count(`SELECT count(*) FROM consumer_messages WHERE payload LIKE '%"bad"%'`); got != 0 {
					t.Errorf("messages of the one that is refused: got %d, want none", got)
				}
			})
		})
	}
}

// TestAScheduleThatCannotBeReadDoesNotDelayOthers has a row that the server does not bring.
func TestAScheduleThatCannotBeReadDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := testapp.New(t, testdb.Postgres(t), testapp.Counting("c", &n))
	yearly(t.Context(), a, numbered(20)...)
	a.Exec(`ALTER TABLE scheduled_messages RENAME TO kept_schedules`)
	a.Exec(`CREATE FUNCTION readable(id bigint, payload text) RETURNS text STABLE LANGUAGE plpgsql AS $$ BEGIN
		IF id = 3 THEN RAISE EXCEPTION 'not to be read'; END IF; RETURN payload; END $$`)
	a.Exec(`DO $$ BEGIN EXECUTE (SELECT 'CREATE VIEW scheduled_messages AS SELECT '
		|| string_agg(CASE column_name WHEN 'payload' THEN 'readable(id, payload) AS payload' ELSE quote_ident(column_name) END, ', ' ORDER BY ordinal_position)
		|| ' FROM kept_schedules' FROM information_schema.columns WHERE table_name = 'kept_schedules' AND table_schema = current_schema()); END $$`)
	fireSchedules(t.Context(), a, schedule.ProcessorConfig{})
	testapp.Eventually(t, "the others fire", func() bool { return len(a.Pending()) == 19 })
}

// TestALoneScheduleThatIsRefusedIsMarkedInTheEnd fails as a database that is away
// does, though only for the one schedule there is: it is not tried for ever unseen.
func TestALoneScheduleThatIsRefusedIsMarkedInTheEnd(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var n atomic.Int64
	a := testapp.New(t, db, testapp.Counting("c", &n))
	a.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.payload LIKE '%bad%' THEN RAISE EXCEPTION 'not now' USING ERRCODE = '57P03'; END IF; RETURN NEW; END $$`)
	a.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON consumer_messages FOR EACH ROW EXECUTE FUNCTION refuse()`)
	yearly(t.Context(), a, "bad")
	fireSchedules(t.Context(), a, schedule.ProcessorConfig{})
	testapp.Eventually(t, "it is marked", func() bool {
		got := rowsOf(t, a.Scheduler(), db, schedule.Filter{})[0]
		return strings.Contains(got.LastError, "not now")
	})
}

// TestALayerThatHangsDoesNotHoldRun, and neither does a hanging telemetry.
func TestALayerThatHangsDoesNotHoldRun(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		for _, where := range []string{"layer", "telemetry"} {
			var calls atomic.Int64
			release := make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			hang := func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, b *bus.Batch) error { calls.Add(1); <-release; return next(ctx, b) }
			}
			a := testapp.New(t, db, testapp.Consumed("c"))
			config := quiet()
			producer := a.Producer
			if where == "layer" {
				layers := outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{hang}}
				producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, layers))
			} else {
				config.Telemetry = hang
			}
			testapp.Must[int64](t)(a.Scheduler().Upsert(t.Context(), db, order{ID: "1"}, "@hourly", "UTC", schedule.Name("n")))
			makeDue(a, time.Second)
			p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, producer, config))
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			testapp.Eventually(t, "it is called", func() bool { return calls.Load() > 0 })
			cancel()
			select {
			case <-ended:
				free()
			case <-time.After(5 * time.Second):
				t.Errorf("%s: Run has not returned 5 s after its context ended", where)
				free()
				<-ended
			}
			a.Exec("DELETE FROM scheduled_messages")
		}
	})
}
