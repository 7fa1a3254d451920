package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Tests of schedules that must not hold back the others.

// yearly writes schedules that are due, with payloads of these ids.
func (a *app) yearly(ctx context.Context, ids ...string) {
	a.Helper()
	for _, id := range ids {
		must[int64](a.T)(a.scheduler().ScheduleAnother(ctx, a.db, order{ID: id}, "@yearly", "UTC"))
	}
	a.makeDue(time.Second)
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	return ids
}

// layered gives the application a producer with one layer.
func (a *app) layered(layer bus.SendMiddleware) {
	a.producer = must[*outbox.Producer](a.T)(outbox.NewProducer(a.registry, outbox.ProducerConfig{Layers: []bus.SendMiddleware{layer}}))
}

// TestASlowProduceLayerWedgesNoSchedules takes longer for a batch than a server
// lets a transaction be idle for a client that may have vanished.
func TestASlowProduceLayerWedgesNoSchedules(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n, calls atomic.Int64
		a := newApp(t, db, counting("c", &n))
		a.layered(func(next bus.Sender) bus.Sender {
			return func(ctx context.Context, b *bus.Batch) error {
				calls.Add(1)
				<-time.After(5200 * time.Millisecond)
				return next(ctx, b)
			}
		})
		a.yearly(t.Context(), numbered(100)...)
		a.fireSchedules(t.Context(), schedule.ProcessorConfig{})
		poll(t, "all schedules fire", 40*time.Second, 50*time.Millisecond, func() bool { return len(a.pending()) == 100 })
		if got := calls.Load(); got > 3 {
			t.Errorf("calls of the layer: got %d, want one, or a few", got)
		}
	})
}

// TestSchedulesThatTakeTooLongTogetherFireInParts has a layer that takes 300 ms for
// each message, and never ends for one of them.
func TestSchedulesThatTakeTooLongTogetherFireInParts(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var n atomic.Int64
		a := newApp(counting("c", &n))
		a.layered(bus.EachMessage(func(ctx context.Context, m *bus.Message) error {
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
		for _, id := range numbered(100) {
			must[int64](t)(a.scheduler().Schedule(ctx, a.db, order{ID: id}, "@every 1h", "UTC", schedule.Name(id)))
		}
		<-time.After(time.Hour + time.Second)
		begun := time.Now()
		a.fireSchedules(ctx, schedule.ProcessorConfig{})
		sooner(t, "the 99 others fire", func() bool { return len(a.pending()) == 99 })
		if took := time.Since(begun); took > 4*time.Minute {
			t.Errorf("until the 99 others have fired: got %s, want minutes at most", took)
		}
		sooner(t, "the one is marked", func() bool {
			got := must[[]schedule.Schedule](t)(a.scheduler().List(ctx, a.db, schedule.Filter{Name: "37"}))[0]
			return strings.Contains(got.LastError, "took longer than 10s")
		})
	})
}

// refuseChanges has the database refuse what is written to the schedule of one
// payload.
func refuseChanges(a *app, id, sqlState string) {
	a.Helper()
	match := fmt.Sprintf("'%%\"%s\"%%'", id)
	switch a.db.Dialect().Name() {
	case dialect.PG:
		a.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.payload LIKE ` + match + ` THEN RAISE EXCEPTION 'no changes here' USING ERRCODE = '` + sqlState + `'; END IF; RETURN NEW; END $$`)
		a.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON scheduled_messages FOR EACH ROW EXECUTE FUNCTION refuse()`)
	case dialect.MySQL:
		a.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON scheduled_messages FOR EACH ROW BEGIN
			IF NEW.payload LIKE ` + match + ` THEN SIGNAL SQLSTATE '` + sqlState + `' SET MESSAGE_TEXT = 'no changes here'; END IF; END`)
	default:
		a.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON scheduled_messages WHEN NEW.payload LIKE ` + match + ` BEGIN SELECT RAISE(ABORT, 'no changes here'); END`)
	}
}

// TestAScheduleThatRefusesChangesHoldsNobodyBack has one that can neither fire nor be
// marked as one that cannot, and is due before all others.
func TestAScheduleThatRefusesChangesHoldsNobodyBack(t *testing.T) {
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
				a := newApp(t, db, counting("c", &n))
				a.yearly(t.Context(), "bad")
				refuseChanges(a, "bad", state)
				for _, id := range numbered(20) {
					must[int64](t)(a.scheduler().ScheduleAnother(t.Context(), a.db, order{ID: id}, "* * * * * *", "UTC"))
				}
				log := &lines{}
				a.fireSchedules(t.Context(), schedule.ProcessorConfig{Logger: log.logger()})
				poll(t, "the others fire, again and again", time.Minute, 20*time.Millisecond, func() bool { return len(a.pending()) >= 80 })
				if !strings.Contains(log.String(), "no changes here") {
					t.Errorf("log: got %s, want the reason", log)
				}
				if got := a.count(`SELECT count(*) FROM consumer_messages WHERE payload LIKE '%"bad"%'`); got != 0 {
					t.Errorf("messages of the one that is refused: got %d, want none", got)
				}
			})
		})
	}
}

// TestAScheduleThatCannotBeReadHoldsNobodyBack has a row that no scan takes.
func TestAScheduleThatCannotBeReadHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a := newApp(t, testdb.SQLite(t), counting("c", &n))
	a.yearly(t.Context(), numbered(20)...)
	a.exec(`PRAGMA ignore_check_constraints = ON`)
	a.exec(`UPDATE scheduled_messages SET created_at = 'garbage' WHERE id = 3`)
	a.fireSchedules(t.Context(), schedule.ProcessorConfig{})
	poll(t, "the others fire", time.Minute, 20*time.Millisecond, func() bool { return len(a.pending()) == 19 })
}

// TestALoneScheduleThatIsRefusedIsMarkedInTheEnd fails as a database that is away
// does, though only for the one schedule there is: it is not tried for ever unseen.
func TestALoneScheduleThatIsRefusedIsMarkedInTheEnd(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var n atomic.Int64
	a := newApp(t, db, counting("c", &n))
	a.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.payload LIKE '%bad%' THEN RAISE EXCEPTION 'not now' USING ERRCODE = '57P03'; END IF; RETURN NEW; END $$`)
	a.exec(`CREATE TRIGGER refuse BEFORE INSERT ON consumer_messages FOR EACH ROW EXECUTE FUNCTION refuse()`)
	a.yearly(t.Context(), "bad")
	a.fireSchedules(t.Context(), schedule.ProcessorConfig{})
	poll(t, "it is marked", time.Minute, 20*time.Millisecond, func() bool {
		got := must[[]schedule.Schedule](t)(a.scheduler().List(t.Context(), db, schedule.Filter{}))[0]
		return strings.Contains(got.LastError, "not now")
	})
}
