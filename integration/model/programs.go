package model

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// programs draws what programs and operators call, and carries it out on the model and on a
// database.
type programs struct {
	*rapid.T
	systems []Application // the model first
	tally   Tally
	now     time.Duration
	made    int  // messages and payloads
	within  bool // a transaction of the caller's
}

// call carries something out, and returns what to count.
type call func(a Application) (answer string)

const (
	done     = "done"
	nothing  = "nothing there"
	conflict = "conflict"
)

// Programs draws calls and checks after each that the database answers and looks like the model.
func Programs(t *rapid.T, tally Tally, db *Program) {
	db.Reset()
	w := &programs{T: t, tally: tally, systems: []Application{NewState(Sound), db}}
	actions := map[string]func(*rapid.T){"fire": func(*rapid.T) { w.fire() }, "change": func(*rapid.T) { w.change() }}
	for n := range 5 {
		actions[fmt.Sprintf("next %d", n)] = func(*rapid.T) { w.next() }
	}
	for n := range 3 {
		actions[fmt.Sprintf("transact %d", n)] = func(*rapid.T) { w.transact() }
	}
	t.Repeat(actions)
}

// seen is what a step returned, and what was visible in it and after it.
type seen struct {
	answers []string
	views   []string
}

// same lets some time pass, carries a step out on both, and compares.
func (w *programs) same(what string, do func(a Application, s *seen)) {
	w.Helper()
	passed := time.Duration(sample(w, "seconds", 0, 1, 2, 3, 5, 8, 13))*time.Second + time.Millisecond
	w.now += passed
	all := ask(w.systems, func(a Application) (s seen) {
		a.Pass(passed)
		do(a, &s)
		s.views = append(s.views, a.View().String())
		return s
	})
	got, want := all[1], all[0]
	if !slices.Equal(got.answers, want.answers) {
		w.Fatalf("answers to %s: got %q, want %q", what, got.answers, want.answers)
	}
	for i, view := range got.views {
		if view != want.views[i] {
			w.Fatalf("part %d of %s, at %s: got\n%s\nwant\n%s\nanswers %q", i, what, w.now, view, want.views[i], got.answers)
		}
	}
	for _, answer := range want.answers {
		w.tally[answer]++
	}
	w.tally["steps"]++
}

func (w *programs) next() {
	consumer := sample(w, "consumer", append(unordered(), inLane, inLane, inLane)...)
	ending := sample(w, "ending", append(endings(), Condemn, Condemn)...)
	w.same("next of "+consumer, func(a Application, s *seen) {
		answer := string(ending)
		if consumer == inLane {
			answer += " in order"
		}
		if !a.Next(consumer, ending) {
			answer = "nothing to run"
		}
		s.answers = []string{answer}
	})
}

func (w *programs) fire() {
	w.made += 2 // a fire time, and a run that was asked for
	first := w.made - 2
	w.same("fire", func(a Application, s *seen) { s.answers = []string{fmt.Sprintf("fired %d", a.Fire(first))} })
}

// change has an operator change a pending message, which is a transaction of its own.
func (w *programs) change() {
	name := sample(w, "operation", "cancel", "reschedule", "run now")
	do := w.operations()[name]()
	w.same(name, func(a Application, s *seen) { s.answers = []string{name + " alone: " + do(a)} })
}

// transact makes calls in one transaction, which may be rolled back, as a whole or to its savepoint.
func (w *programs) transact() {
	w.within = true
	defer func() { w.within = false }()
	calls, rolledBack := w.calls(), sample(w, "rolled back", false, false, false, true)
	w.same("transaction", func(a Application, s *seen) {
		a.InTx(rolledBack, func() {
			for _, do := range calls {
				s.answers = append(s.answers, do(a))
			}
			if rolledBack { // else the same is visible afterwards
				s.views = append(s.views, a.View().String())
			}
		})
		s.answers = append(s.answers, map[bool]string{true: "rollback", false: "commit"}[rolledBack])
	})
}

// calls draws the calls of a transaction.
func (w *programs) calls() (calls []call) {
	operations := w.operations()
	names := slices.Sorted(maps.Keys(operations))
	// More often: so insert ids conflict, keys are soon free again, and consumers resume.
	names = append(names, "produce with an insert id", "produce with an insert id", "produce with an insert id", "produce with a key",
		"edit", "edit", "requeue", "requeue", "requeue", "requeue", "resume", "resume", "resume", "resume",
		"write schedule", string(TriggerSchedule))
	for saved, left := false, sample(w, "calls", 1, 2, 3, 4); left > 0; left-- {
		if !saved && sample(w, "savepoint", true, false, false) {
			saved = true
			calls = append(calls, func(a Application) string { a.Savepoint(); return "savepoint" })
		}
		name := sample(w, "operation", names...)
		do := operations[name]()
		calls = append(calls, func(a Application) string { return name + ": " + do(a) })
		if saved && sample(w, "to savepoint", true, false, false) {
			saved = false
			calls = append(calls, func(a Application) string { a.RollbackToSavepoint(); return "rollback to savepoint" })
		}
	}
	return calls
}

// operations are what a transaction may do: each draws its arguments.
func (w *programs) operations() map[string]func() call {
	did := func(do func(a Application)) call { return func(a Application) string { do(a); return done } }
	all := map[string]func() call{
		"produce":                   func() call { return w.produce(unordered(), "") },
		"produce with an insert id": func() call { return w.produce(unordered(), "x", "x", "y") },
		"produce with a key":        func() call { return w.produce([]string{inLane}, "x", "") },
		"cancel":                    func() call { return w.pending(Application.Cancel) },
		"run now":                   func() call { return w.pending(Application.RunNow) },
		"reschedule": func() call {
			due := w.now + sample(w, "due", -10*time.Second, -time.Microsecond, time.Microsecond, 10*time.Second, 30*time.Second)
			return w.pending(func(a Application, key Key) { a.Reschedule(key, due) })
		},
		"pause": func() call {
			consumer := w.consumer()
			return did(func(a Application) { a.Pause(consumer) })
		},
		"resume": func() call {
			consumer := w.consumer()
			return func(a Application) string { return either(a.Resume(consumer), nothing) }
		},
		"requeue": func() call {
			return w.poisoned(func(a Application, key Key) string { return either(a.Requeue(key), conflict) })
		},
		"edit": func() call {
			payload := w.number()
			return w.poisoned(func(a Application, key Key) string { return either(a.Edit(key, payload), conflict) })
		},
		"discard poisoned": func() call {
			return w.poisoned(func(a Application, key Key) string { a.Discard(key); return done })
		},
		"write schedule": func() call {
			payload := w.number()
			return did(func(a Application) { a.WriteSchedule(payload) })
		},
	}
	for _, change := range scheduleChanges() {
		all[string(change)] = func() call { return func(a Application) string { return either(a.ChangeSchedule(change), nothing) } }
	}
	return all
}

func either(is bool, otherwise string) string {
	if is {
		return done
	}
	return otherwise
}

func sample[T any](w *programs, what string, values ...T) T {
	return rapid.SampledFrom(values).Draw(w.T, what)
}

func (w *programs) consumer() string { return sample(w, "consumer", append(unordered(), inLane)...) }

func (w *programs) number() int { w.made++; return w.made - 1 }

// produce draws one of the insert ids, and a delay for messages without a key.
func (w *programs) produce(consumers []string, insertIDs ...string) call {
	n := w.number()
	p := Produce{Message: n, Payload: n, Consumers: consumers, InsertID: sample(w, "insert id", insertIDs...)}
	if consumers[0] == inLane {
		p.OrderKey = step{}.OrderingKey()
	} else {
		p.Delay = sample(w, "delay", 0, 0, time.Second, time.Minute)
	}
	return func(a Application) string { return fmt.Sprintf("%d written", a.Produce(p)) }
}

// onRow has a call be about one of the rows of a table, if there is one then.
func onRow[R any](w *programs, table func(v View) map[Key]R, do func(a Application, key Key) string) call {
	n := sample(w, "row", 0, 1, 2, 3, 5, 7, 11, 13)
	return func(a Application) string {
		keys := slices.SortedFunc(maps.Keys(table(a.View())), compareKeys)
		if len(keys) == 0 {
			return nothing
		}
		return do(a, keys[n%len(keys)])
	}
}

func (w *programs) poisoned(do func(a Application, key Key) string) call {
	return onRow(w, func(v View) map[Key]Poisoned { return v.Poisoned }, do)
}

// pending changes a pending message. Messages with keys, and on MariaDB all, can only be changed in a
// transaction of their own: in another one they are left alone.
func (w *programs) pending(do func(a Application, key Key)) call {
	within := w.within
	return onRow(w, func(v View) map[Key]Row { return v.Rows }, func(a Application, key Key) string {
		if within && (key.Consumer == inLane || !w.systems[1].AnyOrder()) {
			return "left alone"
		}
		do(a, key)
		return done
	})
}
