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
)

// Tally counts what happened: operations with their answers.
type Tally map[string]int

// Missing lists what has to happen and never did.
func (t Tally) Missing() []string {
	return slices.DeleteFunc(all(), func(what string) bool { return t[what] > 0 })
}

func all() (all []string) {
	for _, o := range outcomes() {
		all = append(all, string(o), string(o)+" in order")
	}
	for name, operation := range operations() {
		for _, answer := range operation.answers {
			all = append(all, name+": "+answer)
		}
	}
	slices.Sort(all)
	return append(slices.Compact(all), "cancel alone: done", "reschedule alone: done", "run now alone: done", "nothing to run", "fired 1",
		"commit", "rollback", "savepoint", "rollback to savepoint: as it was")
}

// Fuzz is a series of runs on the same databases.
type Fuzz struct {
	Sides []*Side
	Tally Tally

	random *rand.Rand
	sides  []*Side // of the run
	now    time.Time
	made   int
	stored string // by each side, after the last step
	log    []string
}

// Run draws the steps from the seed, and whether MariaDB takes part. The error is the first
// difference, with everything that led to it.
func (f *Fuzz) Run(seed uint64, steps int) error {
	f.random, f.made, f.log = rand.New(rand.NewPCG(seed, 0)), 0, nil
	f.now = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	f.sides = slices.Clone(f.Sides)
	if f.random.IntN(2) == 0 { // MariaDB allows fewer operations in one transaction
		f.sides = slices.DeleteFunc(f.sides, (*Side).mariadb)
	}
	for _, s := range f.sides {
		if err := s.reset(); err != nil {
			return err
		}
	}
	stored, err := picture(f.sides[0].ctx, f.sides[0].db)
	if err != nil {
		return err
	}
	f.stored = stored
	for range steps {
		if err := f.step(); err != nil {
			return fmt.Errorf("seed %d: %w\nafter:\n%s", seed, err, strings.Join(f.log, "\n"))
		}
	}
	return nil
}

func (f *Fuzz) step() error {
	f.now = f.now.Add(time.Duration(1+f.random.Int64N(int64(8*time.Second/time.Microsecond))) * time.Microsecond)
	for _, s := range f.sides {
		s.now = f.now
	}
	switch n := f.random.IntN(10); {
	case n < 5:
		return f.consume()
	case n < 6:
		return f.same("fire", func(s *Side) ([]string, error) {
			fired, err := s.schedules.FireDue(s.ctx)
			return []string{fmt.Sprintf("fired %d", fired)}, err
		})
	case n < 7:
		return f.change()
	default:
		return f.transact()
	}
}

// same does something on every side, and compares the answers and what is stored.
func (f *Fuzz) same(what string, do func(s *Side) ([]string, error)) error {
	var answers []string
	var stored string
	for i, s := range f.sides {
		got, err := do(s)
		if err != nil {
			return fmt.Errorf("%s on database %d: %w", what, i, err)
		}
		text, err := picture(s.ctx, s.db)
		if err != nil {
			return err
		}
		if i == 0 {
			answers, stored = got, text
		}
		if !slices.Equal(got, answers) {
			return fmt.Errorf("%s on database %d: got %q, database 0: %q", what, i, got, answers)
		}
		if err := differs(fmt.Sprintf("%s: database %d", what, i), text, stored); err != nil {
			return err
		}
	}
	f.log = append(f.log, fmt.Sprintf("%s %s: %q", f.now.Format(clock), what, answers))
	for _, answer := range answers {
		f.Tally[answer]++
	}
	before := f.stored
	f.stored = stored
	if slices.Contains(answers, "rollback") {
		return differs(what+" was rolled back", stored, before)
	}
	return nil
}

func pickOf[T any](f *Fuzz, values ...T) T { return values[f.random.IntN(len(values))] }

// consume has a consumer run one message, if there is one.
func (f *Fuzz) consume() error {
	consumer, outcome := pickOf(f, append(consumers(), ordered, ordered)...), pickOf(f, outcomes()...)
	return f.same(fmt.Sprintf("step of %s, to %s", consumer, outcome), func(s *Side) ([]string, error) {
		s.outcome = outcome
		ran, err := s.processor.ProcessNext(s.ctx, consumer)
		switch {
		case !ran:
			return []string{"nothing to run"}, err
		case consumer == ordered:
			return []string{string(outcome) + " in order"}, err
		}
		return []string{string(outcome)}, err
	})
}

// change has an operator change a pending message.
func (f *Fuzz) change() error {
	name := pickOf(f, "cancel", "reschedule", "run now")
	what, do := operations()[name].draw(f)
	return f.same(name+what, func(s *Side) ([]string, error) {
		answer, err := do(handle{s, s.ctx, s.db})
		return []string{name + " alone: " + answer}, err
	})
}

// handle is what an operation works with on one side.
type handle struct {
	*Side
	ctx context.Context
	db  bun.IDB
}

// part is one step of a transaction.
type part struct {
	what string
	do   func(h handle) (answer string, err error)
}

// transact runs operations in one transaction, which may be rolled back, as a whole or to its
// savepoint.
func (f *Fuzz) transact() error {
	parts, end := f.draw(), pickOf(f, "commit", "commit", "commit", "rollback")
	var names []string
	for _, p := range parts {
		names = append(names, p.what)
	}
	undo := errors.New("rolled back, as drawn")
	return f.same("transaction of "+strings.Join(names, ", "), func(s *Side) (answers []string, err error) {
		err = s.producer.RunInTx(s.ctx, s.db, func(ctx context.Context, tx bun.Tx) error {
			for _, p := range parts {
				answer, err := p.do(handle{s, ctx, tx})
				if err != nil {
					return fmt.Errorf("%s: %w", p.what, err)
				}
				answers = append(answers, answer)
			}
			if end == "rollback" {
				return undo
			}
			return nil
		})
		if end == "rollback" && errors.Is(err, undo) {
			err = nil
		}
		return append(answers, end), err
	})
}

// draw draws the parts of a transaction.
func (f *Fuzz) draw() (parts []part) {
	saved, names := false, slices.Sorted(maps.Keys(operations()))
	// More often: so insert ids conflict, keys are soon free again, and consumers resume.
	names = append(names, "produce with an insert id", "edit", "requeue", "requeue", "resume", "resume", "resume")
	for range 1 + f.random.IntN(4) {
		if !saved && f.random.IntN(3) == 0 {
			saved = true
			parts = append(parts, part{"savepoint", func(h handle) (answer string, err error) {
				if _, err := h.db.NewRaw("SAVEPOINT drawn").Exec(h.ctx); err != nil {
					return "", err
				}
				h.saved, err = picture(h.ctx, h.db)
				return "savepoint", err
			}})
		}
		name := pickOf(f, names...)
		what, do := operations()[name].draw(f)
		parts = append(parts, part{name + what, func(h handle) (string, error) {
			answer, err := do(h)
			return name + ": " + answer, err
		}})
		if saved && f.random.IntN(3) == 0 {
			saved = false
			parts = append(parts, part{"rollback to savepoint", func(h handle) (string, error) {
				if _, err := h.db.NewRaw("ROLLBACK TO SAVEPOINT drawn").Exec(h.ctx); err != nil {
					return "", err
				}
				text, err := picture(h.ctx, h.db)
				return "rollback to savepoint: as it was", errors.Join(err, differs("what is stored", text, h.saved))
			}})
		}
	}
	return parts
}
