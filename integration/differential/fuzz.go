package differential

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Tally counts what happened, by kinds of operations and of their answers.
type Tally map[string]int

// Missing lists what has to happen and never did.
func (t Tally) Missing() []string {
	return slices.DeleteFunc(all(), func(what string) bool { return t[what] > 0 })
}

func all() []string {
	all := []string{"nothing to run", "commit", "rollback", "savepoint", "rollback to savepoint", "duplicate", "requeue conflict", "fire", "run in order"}
	for _, d := range deeds() {
		all = append(all, string(d))
	}
	return append(all, slices.Sorted(maps.Keys(operations()))...)
}

// String lists the counts.
func (t Tally) String() string {
	var counts []string
	for _, what := range slices.Sorted(maps.Keys(t)) {
		counts = append(counts, fmt.Sprintf("%s %d", what, t[what]))
	}
	return strings.Join(counts, ", ")
}

// Fuzz is a series of runs on the same databases.
type Fuzz struct {
	Sides []*Side
	Flaw  Flaw // of the model
	Tally Tally

	random *rand.Rand
	model  *Model
	now    time.Time
	made   int
	log    []string
}

// Run draws so many steps from the seed. The error is the first difference, with
// everything that led to it.
func (f *Fuzz) Run(seed uint64, steps int) error {
	f.random, f.model = rand.New(rand.NewPCG(seed, 0)), newModel(f.Flaw)
	f.now, f.made, f.log = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC), 0, nil
	for _, s := range f.Sides {
		if err := s.reset(); err != nil {
			return err
		}
	}
	for range steps {
		if err := errors.Join(f.step(), f.compare()); err != nil {
			return fmt.Errorf("seed %d: %w\nafter:\n%s", seed, err, strings.Join(f.log, "\n"))
		}
	}
	return nil
}

func (f *Fuzz) compare() error {
	want := f.model.String()
	for i, s := range f.Sides {
		p, err := s.picture()
		if err != nil {
			return err
		}
		if got := p.String(); got != want {
			return fmt.Errorf("database %d stores:\n%swant:\n%s", i, got, want)
		}
	}
	return nil
}

func (f *Fuzz) step() error {
	f.now = f.now.Add(time.Duration(1+f.random.Int64N(int64(8*time.Second/time.Microsecond))) * time.Microsecond)
	for _, s := range f.Sides {
		s.now = f.now
	}
	switch n := f.random.IntN(10); {
	case n < 4:
		return f.consume()
	case n < 5:
		return f.fire()
	default:
		return f.transact()
	}
}

// same has every side do something, whose answer must be what the model says.
func (f *Fuzz) same(what string, want any, do func(s *Side) (any, error)) error {
	f.log = append(f.log, fmt.Sprintf("%s %s: %v", stamp(f.now), what, want))
	for i, s := range f.Sides {
		got, err := do(s)
		if err != nil {
			return fmt.Errorf("%s on database %d: %w", what, i, err)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%s on database %d: got %v, want %v", what, i, got, want)
		}
	}
	return nil
}

func pickOf[T any](f *Fuzz, values []T) T { return values[f.random.IntN(len(values))] }

// consume has a consumer run one message, if there is one.
func (f *Fuzz) consume() error {
	consumer, deed := pickOf(f, append(consumers(), ordered)), pickOf(f, deeds())
	i := f.model.next(consumer, f.now)
	if i >= 0 && consumer == ordered {
		f.Tally["run in order"]++
	}
	if i >= 0 {
		f.model.run(i, deed, f.now)
		f.Tally[string(deed)]++
	} else {
		f.Tally["nothing to run"]++
	}
	return f.same(fmt.Sprintf("step of %s, to %s", consumer, deed), i >= 0, func(s *Side) (any, error) {
		s.deed = deed
		return s.processor.Step(s.ctx, consumer)
	})
}

func (f *Fuzz) fire() error {
	schedules := 0
	for _, s := range f.model.Schedules {
		if s.Asked || !s.Paused && !s.Due.After(f.now) {
			schedules++
		}
	}
	f.Tally["fire"] += f.model.fire(f.now)
	return f.same("fire", schedules, func(s *Side) (any, error) { return s.schedules.CatchUp(s.ctx) })
}

// handle is what an operation works with, on one side.
type handle struct {
	*Side
	ctx context.Context
	db  bun.IDB
}

// operation is something done in a transaction. What it does to the model is drawn, and
// done, once; the function does it to a database.
type operation func(f *Fuzz) (what string, want any, do func(h handle) (any, error))

// part is something to do in a transaction, and what it must answer.
type part struct {
	what string
	want any
	do   func(h handle) (any, error)
}

// statement is a part of SQL.
func statement(sql string) part {
	return part{sql, "", func(h handle) (any, error) { _, err := h.db.NewRaw(sql).Exec(h.ctx); return "", err }}
}

// transact draws operations, and does them in one transaction, which may be rolled
// back, as may what stands behind its savepoint.
func (f *Fuzz) transact() error {
	before := f.model.clone()
	parts := f.draw()
	end := "commit"
	if f.random.IntN(4) == 0 {
		end, f.model.Picture = "rollback", before
	}
	f.Tally[end]++
	for _, p := range parts {
		f.log = append(f.log, fmt.Sprintf("  %s: %v", p.what, p.want))
	}
	undo := errors.New("rolled back, as drawn")
	return f.same("transaction", end, func(s *Side) (any, error) {
		err := s.producer.RunInTx(s.ctx, s.db, func(ctx context.Context, tx bun.Tx) error {
			for _, p := range parts {
				got, err := p.do(handle{s, ctx, tx})
				if err != nil || fmt.Sprint(got) != fmt.Sprint(p.want) {
					return fmt.Errorf("%s: got %v and error %w, want %v", p.what, got, err, p.want)
				}
			}
			if end == "rollback" {
				return undo
			}
			return nil
		})
		if errors.Is(err, undo) {
			return "rollback", nil
		}
		return "commit", err
	})
}

// draw draws the parts of a transaction, and does them to the model.
func (f *Fuzz) draw() (parts []part) {
	var saved *Picture
	names := slices.Sorted(maps.Keys(operations()))
	for range 1 + f.random.IntN(4) {
		if saved == nil && f.random.IntN(3) == 0 {
			parts = append(parts, statement("SAVEPOINT drawn"))
			p := f.model.clone()
			saved = &p
			f.Tally["savepoint"]++
		}
		name := pickOf(f, names)
		if what, want, do := operations()[name](f); do != nil {
			parts = append(parts, part{what, want, do})
			f.Tally[name]++
		}
		if saved != nil && f.random.IntN(3) == 0 {
			parts = append(parts, statement("ROLLBACK TO SAVEPOINT drawn"))
			if f.Flaw != KeepsRollback {
				f.model.Picture = *saved
			}
			saved = nil
			f.Tally["rollback to savepoint"]++
		}
	}
	return parts
}

// operations are those that go into transactions.
func operations() map[string]operation {
	return map[string]operation{
		"produce": produce, "produce with an insert id": produceKeyed, "produce with a key": produceStep, "cancel": cancel, "reschedule": reschedule, "run now": runNow,
		"pause": pause, "resume": resume, "requeue": requeue, "edit": edit, "discard poisoned": discard,
		"write schedule": writeSchedule, "pause schedule": pauseSchedule, "resume schedule": resumeSchedule, "run schedule": runSchedule, "delete schedule": deleteSchedule,
	}
}

func produce(f *Fuzz) (string, any, func(h handle) (any, error)) { return f.produce("") }

func produceKeyed(f *Fuzz) (string, any, func(h handle) (any, error)) {
	return f.produce(pickOf(f, []string{"x", "y"}))
}

func (f *Fuzz) produce(insertID string) (string, any, func(h handle) (any, error)) {
	f.made++
	n, delay := f.made, pickOf(f, []time.Duration{0, 0, time.Second, time.Minute})
	duplicates := f.model.produce(n, insertID, f.now.Add(delay))
	f.Tally["duplicate"] += duplicates
	return fmt.Sprintf("produce %d %q in %s", n, insertID, delay), duplicates, func(h handle) (any, error) {
		var options []outbox.Option
		if delay > 0 {
			options = append(options, outbox.Delay(delay))
		}
		if insertID != "" {
			options = append(options, outbox.InsertID(insertID))
		}
		receipt, err := h.producer.Produce(h.ctx, h.db, item{n}, options...)
		return receipt.Duplicates, err
	}
}

// produceStep produces for the ordered consumer, at times with an insert id.
func produceStep(f *Fuzz) (string, any, func(h handle) (any, error)) {
	f.made++
	n, insertID := f.made, pickOf(f, []string{"", "", "x"})
	want := 0
	if !f.model.insert(Row{Consumer: ordered, N: n, InsertID: insertID, Due: f.now}) {
		want = 1
	}
	return fmt.Sprintf("produce step %d %q", n, insertID), want, func(h handle) (any, error) {
		var options []outbox.Option
		if insertID != "" {
			options = append(options, outbox.InsertID(insertID))
		}
		receipt, err := h.producer.Produce(h.ctx, h.db, step{n}, options...)
		return receipt.Duplicates, err
	}
}

// changed draws a pending message, and has it changed. One with a key is left alone: people
// change such in transactions of their own.
func (f *Fuzz) changed(what string, model func(i int), do func(h handle, id int64) (outbox.Result, error)) (string, any, func(h handle) (any, error)) {
	if len(f.model.Pending) == 0 {
		return "", nil, nil
	}
	i := f.random.IntN(len(f.model.Pending))
	if f.model.Pending[i].Consumer == ordered {
		return "", nil, nil
	}
	model(i)
	return fmt.Sprintf("%s number %d", what, i), 1, func(h handle) (any, error) {
		id, err := h.id(h.ctx, h.db, "consumer_messages", i)
		if err != nil {
			return nil, err
		}
		result, err := do(h, id)
		return result.Changed, err
	}
}

func cancel(f *Fuzz) (string, any, func(h handle) (any, error)) {
	return f.changed("cancel", func(i int) { f.model.Pending = slices.Delete(f.model.Pending, i, i+1) },
		func(h handle, id int64) (outbox.Result, error) { return h.admin.Cancel(h.ctx, h.db, id) })
}

func reschedule(f *Fuzz) (string, any, func(h handle) (any, error)) {
	at := f.now.Add(time.Duration(f.random.Int64N(int64(40*time.Second/time.Microsecond)))*time.Microsecond - 10*time.Second)
	return f.changed("reschedule to "+stamp(at), func(i int) { f.model.Pending[i].Due = at },
		func(h handle, id int64) (outbox.Result, error) { return h.admin.Reschedule(h.ctx, h.db, at, id) })
}

func runNow(f *Fuzz) (string, any, func(h handle) (any, error)) {
	return f.changed("run now", func(i int) { f.model.Pending[i].Due = f.now },
		func(h handle, id int64) (outbox.Result, error) { return h.admin.RunNow(h.ctx, h.db, id) })
}

func pause(f *Fuzz) (string, any, func(h handle) (any, error)) {
	consumer := pickOf(f, append(consumers(), ordered))
	if !slices.Contains(f.model.Paused, consumer) {
		f.model.Paused = slices.Sorted(slices.Values(append(f.model.Paused, consumer)))
	}
	return "pause " + consumer, "", func(h handle) (any, error) { return "", h.admin.Pause(h.ctx, h.db, consumer) }
}

func resume(f *Fuzz) (string, any, func(h handle) (any, error)) {
	consumer := pickOf(f, append(consumers(), f.model.Paused...))
	paused := slices.Contains(f.model.Paused, consumer)
	f.model.Paused = slices.DeleteFunc(f.model.Paused, func(name string) bool { return name == consumer })
	return "resume " + consumer, paused, func(h handle) (any, error) {
		err := h.admin.Resume(h.ctx, h.db, consumer)
		if errors.Is(err, outbox.ErrNotPaused) {
			return false, nil
		}
		return true, err
	}
}

// schedule draws the name of a schedule that there is.
func (f *Fuzz) schedule(what string, model func(i int), do func(h handle, id int64) error) (string, any, func(h handle) (any, error)) {
	if len(f.model.Schedules) == 0 {
		return "", nil, nil
	}
	i := f.random.IntN(len(f.model.Schedules))
	name := f.model.Schedules[i].Name
	model(i)
	return what + " " + name, "", func(h handle) (any, error) {
		found, _, err := h.scheduler.List(h.ctx, h.db, schedule.Filter{Name: name}, schedule.Page{})
		if err != nil || len(found) != 1 {
			return len(found), err
		}
		return "", do(h, found[0].ID)
	}
}

func writeSchedule(f *Fuzz) (string, any, func(h handle) (any, error)) {
	f.made++
	n := f.made
	f.model.write("s", n, f.now)
	return fmt.Sprintf("write schedule of %d", n), "", func(h handle) (any, error) {
		_, err := h.scheduler.Schedule(h.ctx, h.db, item{n}, "* * * * *", "UTC", schedule.Name("s"))
		return "", err
	}
}

func pauseSchedule(f *Fuzz) (string, any, func(h handle) (any, error)) {
	return f.schedule("pause schedule", func(i int) { f.model.Schedules[i].Paused = true },
		func(h handle, id int64) error { return h.scheduler.Pause(h.ctx, h.db, id) })
}

func resumeSchedule(f *Fuzz) (string, any, func(h handle) (any, error)) {
	return f.schedule("resume schedule", func(i int) {
		if s := &f.model.Schedules[i]; s.Paused {
			s.Paused, s.Due = false, following(f.now)
		}
	}, func(h handle, id int64) error { return h.scheduler.Resume(h.ctx, h.db, id) })
}

func runSchedule(f *Fuzz) (string, any, func(h handle) (any, error)) {
	return f.schedule("run schedule", func(i int) { f.model.Schedules[i].Asked = true },
		func(h handle, id int64) error { return h.scheduler.RunNow(h.ctx, h.db, id) })
}

func deleteSchedule(f *Fuzz) (string, any, func(h handle) (any, error)) {
	return f.schedule("delete schedule", func(i int) { f.model.Schedules = slices.Delete(f.model.Schedules, i, i+1) },
		func(h handle, id int64) error { return h.scheduler.DeleteByID(h.ctx, h.db, id) })
}
