package differential

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Deed is what a consumer does.
type Deed string

// The deeds.
const (
	Succeed Deed = "succeed"
	Fail    Deed = "fail"
	Panic   Deed = "panic"
	Snooze  Deed = "snooze"
	Condemn Deed = "condemn" // a permanent error
	Discard Deed = "discard"
)

func deeds() []Deed { return []Deed{Succeed, Succeed, Fail, Panic, Snooze, Condemn, Discard} }

const (
	attempts      = 3 // before a message is poisoned
	retry         = 10 * time.Second
	snooze        = 25 * time.Second
	transactional = "c"
	ordered       = "o" // of steps, which have one key
)

// consumers are those of items.
func consumers() []string { return []string{"a", "b", transactional} }

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
func (step) OrderKey() string { return "key" }

// Side is one database, and everything that works on it. It is not safe for concurrent
// use.
type Side struct {
	db        *bun.DB
	ctx       context.Context
	now       time.Time
	deed      Deed // of the next run
	producer  *outbox.Producer
	processor *outbox.Processor
	admin     *outbox.Admin
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
	config := outbox.ProcessorConfig{Logger: logger, MaxAttempts: attempts, Chain: middleware.Default(middleware.Options{Logger: logger, Backoff: middleware.Constant(retry)})}
	var errs [6]error
	s.producer, errs[0] = outbox.NewProducer(registry, outbox.ProducerConfig{})
	s.processor, errs[1] = outbox.NewProcessor(db, registry, config)
	s.admin, errs[2] = outbox.NewAdmin(registry)
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
	var all []bus.Consumer
	for _, name := range consumers() {
		if name != transactional {
			all = append(all, bus.Consume(name, func(context.Context, item) error { return s.act() }))
			continue
		}
		all = append(all, outbox.ConsumeTx(name, func(ctx context.Context, tx bun.Tx, i item) error {
			if _, err := tx.NewRaw("INSERT INTO effects (n) VALUES (?)", i.N).Exec(ctx); err != nil {
				return err
			}
			return s.act()
		}, bus.Timeout(5*time.Second)))
	}
	all = append(all, bus.Consume(ordered, func(context.Context, step) error { return s.act() }, bus.Ordered(bus.ParkKey)))
	return bus.NewRegistry(all...)
}

func (s *Side) act() error {
	switch s.deed {
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

// reset empties all tables.
func (s *Side) reset() error {
	var errs []error
	for _, table := range []string{"consumer_messages", "message_claims", "poisoned_messages", "paused_consumers", "scheduled_messages", "effects"} {
		_, err := s.db.NewRaw("DELETE FROM " + table).Exec(s.ctx)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// id is the row id of the message at a position, in the order of ids.
func (s *Side) id(ctx context.Context, db bun.IDB, table string, i int) (id int64, err error) {
	err = db.NewRaw("SELECT id FROM "+table+" ORDER BY id LIMIT 1 OFFSET ?", i).Scan(ctx, &id)
	return id, err
}

// picture reads everything.
func (s *Side) picture() (p Picture, err error) {
	p = Picture{Effects: make(map[string]int)}
	var errs [5]error
	p.Pending, errs[0] = s.rows("consumer_messages")
	p.Poisoned, errs[1] = s.rows("poisoned_messages")
	var ns []int
	errs[2] = s.db.NewRaw("SELECT consumer_type FROM paused_consumers ORDER BY 1").Scan(s.ctx, &p.Paused)
	errs[3] = s.db.NewRaw("SELECT n FROM effects").Scan(s.ctx, &ns)
	for _, n := range ns {
		p.Effects[fmt.Sprint(n)]++
	}
	errs[4] = s.db.NewRaw("SELECT count(*) FROM message_claims").Scan(s.ctx, &p.Claims)
	schedules, err := s.scheduled()
	p.Schedules = schedules
	return p, errors.Join(append(errs[:], err)...)
}

func (s *Side) rows(table string) (rows []Row, err error) {
	var found []struct {
		ConsumerType   string
		Payload        string
		InsertID       string
		AvailableAfter store.Moment
		Attempts       int
	}
	err = s.db.NewRaw("SELECT consumer_type, payload, COALESCE(insert_id, '') AS insert_id, available_after, attempts FROM "+table+" ORDER BY id").Scan(s.ctx, &found)
	for _, f := range found {
		r := Row{Consumer: f.ConsumerType, InsertID: f.InsertID, Due: f.AvailableAfter.Time, Attempts: f.Attempts}
		if _, err := fmt.Sscanf(f.Payload, `{"n":%d}`, &r.N); err != nil {
			return nil, fmt.Errorf("payload %q: %w", f.Payload, err)
		}
		rows = append(rows, r)
	}
	return rows, err
}

func (s *Side) scheduled() (schedules []Schedule, err error) {
	var found []struct {
		Name           string
		Payload        string
		Paused, Asked  bool
		AvailableAfter store.Moment
	}
	err = s.db.NewRaw("SELECT name, payload, paused, run_at IS NOT NULL AS asked, available_after FROM scheduled_messages").Scan(s.ctx, &found)
	for _, f := range found {
		one := Schedule{Name: f.Name, Paused: f.Paused, Asked: f.Asked, Due: f.AvailableAfter.Time}
		if _, err := fmt.Sscanf(f.Payload, `{"n":%d}`, &one.N); err != nil {
			return nil, fmt.Errorf("payload %q: %w", f.Payload, err)
		}
		schedules = append(schedules, one)
	}
	slices.SortFunc(schedules, func(a, b Schedule) int { return cmp.Compare(a.Name, b.Name) })
	return schedules, err
}
