package model

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Application is what the public API offers to programs and operators: the model, or a
// database.
type Application interface {
	// Produce returns how many rows were written.
	Produce(p Produce) (written int)
	Cancel(key Key)
	Reschedule(key Key, due time.Duration)
	RunNow(key Key)
	Pause(consumer string)
	// Resume reports whether the consumer was paused.
	Resume(consumer string) (paused bool)
	// Requeue reports whether a poisoned message is pending again: its insert id may be taken.
	Requeue(key Key) (pending bool)
	// Edit is Requeue with another payload.
	Edit(key Key, payload int) (pending bool)
	Discard(key Key)
	// WriteSchedule writes the one schedule, which fires every minute.
	WriteSchedule(payload int)
	ChangeSchedule(change ScheduleChange) (exists bool)
	// Fire fires what is due, and returns how many messages that made. Their numbers begin with first.
	Fire(first int) (messages int)
	// Next has a processor run one message of a consumer, if one may run.
	Next(consumer string, ending Ending) (ran bool)
	// InTx makes the calls in one transaction.
	InTx(rolledBack bool, calls func())
	Savepoint()
	RollbackToSavepoint()
	// AnyOrder reports whether messages without keys can be changed in a transaction of the caller's.
	AnyOrder() bool
	Pass(d time.Duration)
	View() View
}

// Ending is how a run of a consumer ends.
type Ending string

// The endings.
const (
	Succeed  Ending = "succeed"
	Fail     Ending = "fail"
	Panic    Ending = "panic"
	Snooze   Ending = "snooze"
	Condemn  Ending = "condemn" // a permanent error
	Unwanted Ending = "discard"
)

func endings() []Ending { return []Ending{Succeed, Fail, Panic, Snooze, Condemn, Unwanted} }

// ScheduleChange is a change of a schedule.
type ScheduleChange string

// The changes.
const (
	PauseSchedule   ScheduleChange = "pause schedule"
	ResumeSchedule  ScheduleChange = "resume schedule"
	TriggerSchedule ScheduleChange = "run schedule"
	DeleteSchedule  ScheduleChange = "delete schedule"
)

func scheduleChanges() []ScheduleChange {
	return []ScheduleChange{PauseSchedule, ResumeSchedule, TriggerSchedule, DeleteSchedule}
}

const (
	maxAttempts   = 3 // before a message is poisoned
	retryAfter    = 10 * time.Second
	snoozed       = 25 * time.Second
	transactional = "tx"
	inLane        = "parks" // its messages have one key
	scheduled     = "s"
)

// unordered are the consumers whose messages have no keys.
func unordered() []string { return append(consumers(), transactional) }

// item is the payload of consumers without keys.
type item struct {
	N int `json:"n"`
}

// PayloadType implements bus.Payload.
func (item) PayloadType() string { return "item" }

// step is the payload of the consumer with keys.
type step struct {
	N int `json:"n"`
}

// PayloadType implements bus.Payload.
func (step) PayloadType() string { return "step" }

// OrderingKey is the same of all steps: which of several keys is next is not specified.
func (step) OrderingKey() string { return orderKeys()[0] }

func payloadFor(consumer string, n int) bus.Payload {
	if consumer == inLane {
		return step{n}
	}
	return item{n}
}

// Program is an Application that works through the public API. Like Database it panics with errors.
type Program struct {
	*Database
	ending    Ending // of the next run
	producer  *outbox.Producer
	processor *outbox.Processor
	admin     *admin.Client
	poison    *poison.Store
	scheduler *schedule.Scheduler
	schedules *schedule.Processor
}

var _ Application = (*Program)(nil)

// OpenProgram prepares a database like OpenDatabase.
func OpenProgram(ctx context.Context, db *bun.DB) (*Program, error) {
	d, err := OpenDatabase(ctx, db)
	if err != nil {
		return nil, err
	}
	p := &Program{Database: d}
	registry, err := bus.NewRegistry(bus.Consume(consumers()[0], p.run), bus.Consume(consumers()[1], p.run),
		outbox.ConsumeTx(transactional, p.runInTx, bus.Timeout(5*time.Second)),
		bus.Consume(inLane, func(context.Context, step) error { return p.end() }, bus.Ordered(bus.BlockKey)))
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.DiscardHandler)
	chain := middleware.Default(middleware.Options{Logger: logger, Backoff: middleware.Constant(retryAfter)})
	config := outbox.ProcessorConfig{Logger: logger, MaxAttempts: maxAttempts, Middleware: chain}
	var errs [6]error
	p.producer, errs[0] = outbox.NewProducer(registry, outbox.ProducerConfig{})
	p.processor, errs[1] = outbox.NewProcessor(db, registry, config)
	p.admin, errs[2] = admin.NewClient(registry)
	p.poison, errs[3] = poison.NewStore(registry)
	p.scheduler, errs[4] = schedule.NewScheduler(registry, schedule.SchedulerConfig{})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	p.schedules, err = schedule.NewProcessor(db, registry, p.producer, schedule.ProcessorConfig{Logger: logger})
	return p, err
}

func (p *Program) run(context.Context, item) error { return p.end() }

func (p *Program) runInTx(ctx context.Context, tx bun.Tx, _ item) error {
	m, _ := bus.MessageFromContext(ctx)
	if _, err := tx.NewRaw("INSERT INTO effects (message, consumer) VALUES (?, ?)", p.messages[m.ID], m.Consumer).Exec(ctx); err != nil {
		return err
	}
	return p.end()
}

func (p *Program) end() error {
	switch p.ending {
	case Fail:
		return errors.New("failed, as drawn")
	case Panic:
		panic("as drawn")
	case Snooze:
		return bus.Snooze(snoozed)
	case Condemn:
		return bus.Permanent(errors.New("failed for good, as drawn"))
	case Unwanted:
		return bus.Discard(errors.New("not wanted, as drawn"))
	}
	return nil
}

// Produce implements Application.
func (p *Program) Produce(of Produce) int {
	var options []outbox.Option
	if of.Delay > 0 {
		options = append(options, outbox.Delay(of.Delay))
	}
	if of.InsertID != "" {
		options = append(options, outbox.InsertID(of.InsertID))
	}
	receipt, err := p.producer.Produce(p.ctx, p.handle, payloadFor(of.Consumers[0], of.Payload), options...)
	must(err)
	p.messages[receipt.MessageID] = of.Message
	return receipt.Enqueued
}

// Cancel implements Application.
func (p *Program) Cancel(key Key) { changedOne(p.admin.Cancel(p.ctx, p.handle, p.ids[key])) }

// Reschedule implements Application.
func (p *Program) Reschedule(key Key, due time.Duration) {
	changedOne(p.admin.Reschedule(p.ctx, p.handle, epoch().Add(due), p.ids[key]))
}

// RunNow implements Application.
func (p *Program) RunNow(key Key) { changedOne(p.admin.RunNow(p.ctx, p.handle, p.ids[key])) }

func changedOne(result admin.Result, err error) {
	if must(err); result.Changed != 1 {
		panic(result)
	}
}

// Pause implements Application.
func (p *Program) Pause(consumer string) {
	must(p.admin.Pause(p.ctx, p.handle, consumer, admin.PauseNote{}))
}

// Resume implements Application.
func (p *Program) Resume(consumer string) bool {
	return unless(p.admin.Resume(p.ctx, p.handle, consumer), admin.ErrNotPaused)
}

// unless reports whether there was no error; the expected one is allowed.
func unless(err, expected error) bool {
	if !errors.Is(err, expected) {
		must(err)
	}
	return err == nil
}

// Requeue implements Application.
func (p *Program) Requeue(key Key) bool {
	result, err := p.poison.Requeue(p.ctx, p.handle, p.ids[key])
	if must(err); result != (poison.Result{Requeued: 1}) && result != (poison.Result{Conflicts: 1}) {
		panic(result)
	}
	return result.Requeued == 1
}

// Edit implements Application.
func (p *Program) Edit(key Key, payload int) bool {
	return unless(p.poison.EditAndRequeue(p.ctx, p.handle, p.ids[key], payloadFor(key.Consumer, payload)), poison.ErrConflict)
}

// Discard implements Application.
func (p *Program) Discard(key Key) {
	n, err := p.poison.Discard(p.ctx, p.handle, p.ids[key])
	if must(err); n != 1 {
		panic(n)
	}
}

// WriteSchedule implements Application.
func (p *Program) WriteSchedule(payload int) {
	_, err := p.scheduler.Upsert(p.ctx, p.handle, item{payload}, "* * * * *", "UTC", schedule.Name(scheduled))
	must(err)
}

// ChangeSchedule implements Application.
func (p *Program) ChangeSchedule(change ScheduleChange) bool {
	found, _, err := p.scheduler.List(p.ctx, p.handle, schedule.Filter{Name: scheduled}, admin.Page{})
	if must(err); len(found) == 0 {
		return false
	}
	must(map[ScheduleChange]func(context.Context, bus.Handle, int64) error{
		PauseSchedule: p.scheduler.Pause, ResumeSchedule: p.scheduler.Resume, TriggerSchedule: p.scheduler.Trigger,
		DeleteSchedule: p.scheduler.DeleteByID,
	}[change](p.ctx, p.handle, found[0].ID))
	return true
}

// Fire implements Application.
func (p *Program) Fire(first int) (messages int) {
	_, err := p.schedules.FireDue(p.ctx)
	must(err)
	var ids []uuid.UUID
	must(p.handle.NewRaw("SELECT message_id FROM consumer_messages GROUP BY message_id ORDER BY MIN(id)").Scan(p.ctx, &ids))
	for _, id := range ids {
		if _, known := p.messages[id]; !known {
			p.messages[id] = first + messages
			messages++
		}
	}
	return messages
}

// Next implements Application.
func (p *Program) Next(consumer string, ending Ending) bool {
	p.ending = ending
	ran, err := p.processor.ProcessNext(p.ctx, consumer)
	must(err)
	return ran
}

// InTx implements Application.
func (p *Program) InTx(rolledBack bool, calls func()) {
	undo, outer := errors.New("rolled back, as drawn"), p.ctx
	err := p.producer.RunInTx(p.ctx, p.db, func(ctx context.Context, tx bun.Tx) error {
		p.ctx, p.handle = ctx, tx
		defer func() { p.ctx, p.handle = outer, p.db }()
		if calls(); rolledBack {
			return undo
		}
		return nil
	})
	unless(err, undo)
}

// Savepoint implements Application.
func (p *Program) Savepoint() { p.exec("SAVEPOINT drawn") }

// RollbackToSavepoint implements Application.
func (p *Program) RollbackToSavepoint() { p.exec("ROLLBACK TO SAVEPOINT drawn") }

func (p *Program) exec(statement string) {
	_, err := p.handle.NewRaw(statement).Exec(p.ctx)
	must(err)
}

// View implements Application. It leaves out errors, which have the time of day in them, and bounds, which these
// consumers do not have.
func (p *Program) View() View {
	v := newView()
	p.readMessages(v)
	p.readClaims(v)
	p.readEffects(v)
	for key, row := range v.Rows {
		row.Errors = ""
		v.Rows[key] = row
	}
	for key, poisoned := range v.Poisoned {
		poisoned.Errors = ""
		v.Poisoned[key] = poisoned
	}
	var rows []struct {
		Name              string
		Payload           sql.NullString // of a schedule
		At                store.Moment
		Paused, Triggered bool
	}
	must(p.handle.NewRaw("SELECT name, payload, available_after AS at, paused, run_at IS NOT NULL AS triggered FROM scheduled_messages"+
		" UNION ALL SELECT consumer_type, NULL, paused_at, true, false FROM paused_consumers").Scan(p.ctx, &rows))
	for _, row := range rows {
		if !row.Payload.Valid {
			v.Paused[row.Name] = row.At.Sub(epoch())
			continue
		}
		v.Schedules[row.Name] = Schedule{
			Payload: payloadOf(row.Payload.String), Due: row.At.Sub(epoch()), Paused: row.Paused, Triggered: row.Triggered,
		}
	}
	return v
}
