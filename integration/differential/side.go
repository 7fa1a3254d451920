package differential

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Outcome is how a run of a consumer ends.
type Outcome string

// The outcomes.
const (
	Succeed Outcome = "succeed"
	Fail    Outcome = "fail"
	Panic   Outcome = "panic"
	Snooze  Outcome = "snooze"
	Condemn Outcome = "condemn" // a permanent error
	Discard Outcome = "discard"
)

func outcomes() []Outcome {
	return []Outcome{Succeed, Fail, Panic, Snooze, Condemn, Condemn, Condemn, Discard}
}

const (
	attempts      = 3 // before a message is poisoned
	retry         = 10 * time.Second
	snooze        = 25 * time.Second
	transactional = "c"
	ordered       = "o" // of steps, which have one key
)

// consumers are all, of which the last is of steps and the others of items.
func consumers() []string { return []string{"a", "b", transactional, ordered} }

// item is the payload of everything.
type item struct {
	N int `json:"n"`
}

// PayloadType implements bus.Payload.
func (item) PayloadType() string { return "item" }

// step is a payload of the ordered consumer.
type step struct {
	N int `json:"n"`
}

// PayloadType implements bus.Payload.
func (step) PayloadType() string { return "step" }

// OrderKey is the same of all steps: of several keys nobody could tell whose turn it is.
func (step) OrderingKey() string { return "key" }

// Side is one database, and everything that works on it. It is not safe for concurrent
// use.
type Side struct {
	db        *bun.DB
	ctx       context.Context
	now       time.Time
	outcome   Outcome // of the next run
	saved     string  // what was stored at the savepoint
	producer  *outbox.Producer
	processor *outbox.Processor
	admin     *admin.Client
	poison    *poison.Store
	scheduler *schedule.Scheduler
	schedules *schedule.Processor
}

// NewSide prepares an empty database.
func NewSide(ctx context.Context, db *bun.DB) (*Side, error) {
	s := &Side{db: db}
	s.ctx = store.WithClock(ctx, func() time.Time { return s.now })
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.DiscardHandler)
	chain := middleware.Default(middleware.Options{Logger: logger, Backoff: middleware.Constant(retry)})
	config := outbox.ProcessorConfig{Logger: logger, MaxAttempts: attempts, Middleware: chain}
	var errs [6]error
	s.producer, errs[0] = outbox.NewProducer(registry, outbox.ProducerConfig{})
	s.processor, errs[1] = outbox.NewProcessor(db, registry, config)
	s.admin, errs[2] = admin.NewClient(registry)
	s.poison, errs[3] = poison.NewStore(registry)
	s.scheduler, errs[4] = schedule.NewScheduler(registry, schedule.SchedulerConfig{})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if s.schedules, err = schedule.NewProcessor(db, registry, s.producer, schedule.ProcessorConfig{Logger: logger}); err != nil {
		return nil, err
	}
	if err := outbox.Migrate(s.ctx, db, registry.Tables()); err != nil {
		return nil, err
	}
	_, err = db.NewRaw("CREATE TABLE effects (n bigint NOT NULL)").Exec(ctx)
	return s, err
}

func (s *Side) registry() (*bus.Registry, error) {
	act := func(context.Context, item) error { return s.act() }
	return bus.NewRegistry(bus.Consume("a", act), bus.Consume("b", act),
		outbox.ConsumeTx(transactional, func(ctx context.Context, tx bun.Tx, i item) error {
			if _, err := tx.NewRaw("INSERT INTO effects (n) VALUES (?)", i.N).Exec(ctx); err != nil {
				return err
			}
			return s.act()
		}, bus.Timeout(5*time.Second)),
		bus.Consume(ordered, func(context.Context, step) error { return s.act() }, bus.Ordered(bus.BlockKey)))
}

func (s *Side) act() error {
	switch s.outcome {
	case Fail:
		return errors.New("failed, as drawn")
	case Panic:
		panic("as drawn")
	case Snooze:
		return bus.Snooze(snooze)
	case Condemn:
		return bus.Permanent(errors.New("failed for good, as drawn"))
	case Discard:
		return bus.Discard(errors.New("not wanted, as drawn"))
	}
	return nil
}

func (s *Side) mariadb() bool { return s.db.Dialect().Name() == dialect.MySQL }

// reset empties all tables.
func (s *Side) reset() error {
	var errs []error
	for _, table := range []string{"consumer_messages", "message_claims", "poisoned_messages", "paused_consumers",
		"scheduled_messages", "effects"} {
		_, err := s.db.NewRaw("DELETE FROM " + table).Exec(s.ctx)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// found is a row that an operation may be about.
type found struct {
	ID           int64
	ConsumerType string
}

// list lists the rows of a table of messages in the order in which they were inserted.
func (h handle) list(table string) (rows []found, err error) {
	err = h.db.NewRaw("SELECT id, consumer_type FROM "+table+" ORDER BY id").Scan(h.ctx, &rows)
	return rows, err
}

const clock = "15:04:05.000000"

// pictureSQL reads all that must be equal on all databases. Row ids only give the order.
const pictureSQL = `
SELECT 'pending' AS kind, id AS place, consumer_type AS name, payload, COALESCE(insert_id, '') AS insert_id, available_after AS due,
  attempts AS n, false AS paused, false AS asked FROM consumer_messages
UNION ALL SELECT 'poisoned', id, consumer_type, payload, COALESCE(insert_id, ''), available_after, attempts, false, false FROM poisoned_messages
UNION ALL SELECT 'paused', 0, consumer_type, '', '', paused_at, 0, false, false FROM paused_consumers
UNION ALL SELECT 'schedule', 0, name, payload, '', available_after, 0, paused, run_at IS NOT NULL FROM scheduled_messages
UNION ALL SELECT 'effect', 0, '', '', '', NULL, n, false, false FROM effects
UNION ALL SELECT 'claims', 0, '', '', '', NULL, count(*), false, false FROM message_claims
ORDER BY kind, place, name, n`

// picture is the text of all that is stored: equal databases have equal texts.
func picture(ctx context.Context, db bun.IDB) (string, error) {
	var rows []struct {
		Kind, Name, Payload, InsertID string
		Place                         int64
		Due                           store.Moment
		N                             int
		Paused, Asked                 bool
	}
	err := db.NewRaw(pictureSQL).Scan(ctx, &rows)
	var b strings.Builder
	for _, r := range rows {
		due := r.Due.UTC().Format(clock)
		fmt.Fprintf(&b, "%s %s %s %q due %s n %d paused %t asked %t\n", r.Kind, r.Name, r.Payload, r.InsertID, due, r.N, r.Paused, r.Asked)
	}
	return b.String(), err
}

// differs returns an error with the lines that only one of two pictures has.
func differs(what, got, want string) error {
	if got == want {
		return nil
	}
	only := func(a, b string) string {
		var lines []string
		for line := range strings.Lines(a) {
			if !strings.Contains(b, line) {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	return fmt.Errorf("%s: got\n%swant\n%sor those in another order", what, only(got, want), only(want, got))
}
