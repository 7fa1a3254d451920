package differential

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// operation is something that a transaction may do.
type operation struct {
	draw    draw
	answers []string // that must occur in a series of runs
}

// draw draws the arguments of an operation, and returns a function that carries it out on a side.
type draw func(f *Fuzz) (what string, do func(h handle) (answer string, err error))

const (
	done     = "done"
	nothing  = "nothing there"
	conflict = "conflict"
)

func operations() map[string]operation {
	did, written := []string{done}, []string{"0 duplicates"}
	return map[string]operation{
		"produce":                   {produce(items, ""), written},
		"produce with an insert id": {produce(items, "x", "y"), append(written, "1 duplicates", "2 duplicates", "3 duplicates")},
		"produce with a key":        {produce(steps, "", "", "x"), append(written, "1 duplicates")},
		"cancel":                    {changed(func(h handle, id int64) (admin.Result, error) { return h.admin.Cancel(h.ctx, h.db, id) }), did},
		"run now":                   {changed(func(h handle, id int64) (admin.Result, error) { return h.admin.RunNow(h.ctx, h.db, id) }), did},
		"reschedule":                {reschedule, did},
		"pause":                     {pause, did},
		"resume":                    {resume, []string{done, nothing}},
		"requeue":                   {requeue, []string{done, conflict}},
		"edit":                      {edit, []string{done, conflict}},
		"discard poisoned":          {discard, did},
		"write schedule":            {writeSchedule, did},
		"pause schedule":            {onSchedule(func(h handle, id int64) error { return h.scheduler.Pause(h.ctx, h.db, id) }), did},
		"resume schedule":           {onSchedule(func(h handle, id int64) error { return h.scheduler.Resume(h.ctx, h.db, id) }), did},
		"run schedule":              {onSchedule(func(h handle, id int64) error { return h.scheduler.Trigger(h.ctx, h.db, id) }), did},
		"delete schedule":           {onSchedule(func(h handle, id int64) error { return h.scheduler.DeleteByID(h.ctx, h.db, id) }), did},
	}
}

func items(n int) bus.Payload { return item{n} }
func steps(n int) bus.Payload { return step{n} }

func (f *Fuzz) next() int { f.made++; return f.made }

// produce draws one of the insert ids, and a delay for payloads without a key.
func produce(payload func(n int) bus.Payload, insertIDs ...string) draw {
	return func(f *Fuzz) (string, func(h handle) (string, error)) {
		var options []outbox.Option
		p, insertID, delay := payload(f.next()), pickOf(f, insertIDs...), pickOf(f, 0, 0, time.Second, time.Minute)
		_, keyed := p.(step)
		if !keyed && delay > 0 {
			options = append(options, outbox.Delay(delay))
		}
		if insertID != "" {
			options = append(options, outbox.InsertID(insertID))
		}
		return fmt.Sprintf(" %v %q in %s", p, insertID, delay), func(h handle) (string, error) {
			receipt, err := h.producer.Produce(h.ctx, h.db, p, options...)
			return fmt.Sprintf("%d duplicates", receipt.Duplicates), err
		}
	}
}

// onRow does something to a row of a table, whose place is drawn before the table is read.
func (f *Fuzz) onRow(table, what string, do func(h handle, row found) (string, error)) (string, func(h handle) (string, error)) {
	n := f.random.IntN(100)
	return fmt.Sprintf(" number %d%s", n, what), func(h handle) (string, error) {
		rows, err := h.list(table)
		if err != nil || len(rows) == 0 {
			return nothing, err
		}
		return do(h, rows[n%len(rows)])
	}
}

// changed changes a pending message. Messages with keys, and on MariaDB all, can only be changed
// in a transaction of their own: in another one they are left alone.
func changed(do func(h handle, id int64) (admin.Result, error)) draw {
	return func(f *Fuzz) (string, func(h handle) (string, error)) {
		return f.onRow("consumer_messages", "", func(h handle, row found) (string, error) {
			_, within := h.db.(bun.Tx)
			if within && (row.ConsumerType == ordered || slices.ContainsFunc(f.sides, (*Side).mariadb)) {
				return "left alone", nil
			}
			result, err := do(h, row.ID)
			if err == nil && result.Changed != 1 {
				err = fmt.Errorf("got %+v, want 1 changed", result)
			}
			return done, err
		})
	}
}

func reschedule(f *Fuzz) (string, func(h handle) (string, error)) {
	at := f.now.Add(time.Duration(f.random.Int64N(int64(40*time.Second/time.Microsecond)))*time.Microsecond - 10*time.Second)
	what, do := changed(func(h handle, id int64) (admin.Result, error) {
		return h.admin.Reschedule(h.ctx, h.db, at, id)
	})(f)
	return what + " to " + at.Format(clock), do
}

func pause(f *Fuzz) (string, func(h handle) (string, error)) {
	consumer := pickOf(f, consumers()...)
	return " " + consumer, func(h handle) (string, error) { return done, h.admin.Pause(h.ctx, h.db, consumer, admin.PauseNote{}) }
}

func resume(f *Fuzz) (string, func(h handle) (string, error)) {
	consumer := pickOf(f, consumers()...)
	return " " + consumer, func(h handle) (string, error) {
		err := h.admin.Resume(h.ctx, h.db, consumer)
		if errors.Is(err, admin.ErrNotPaused) {
			return nothing, nil
		}
		return done, err
	}
}

func requeue(f *Fuzz) (string, func(h handle) (string, error)) {
	return f.onRow("poisoned_messages", "", func(h handle, row found) (string, error) {
		result, err := h.poison.Requeue(h.ctx, h.db, row.ID)
		switch result {
		case poison.Result{Requeued: 1}:
			return done, err
		case poison.Result{Conflicts: 1}:
			return conflict, err
		}
		return fmt.Sprintf("%+v", result), err
	})
}

func edit(f *Fuzz) (string, func(h handle) (string, error)) {
	n := f.next()
	return f.onRow("poisoned_messages", fmt.Sprintf(" to %d", n), func(h handle, row found) (string, error) {
		var payload bus.Payload = item{n}
		if row.ConsumerType == ordered {
			payload = step{n}
		}
		err := h.poison.EditAndRequeue(h.ctx, h.db, row.ID, payload)
		if errors.Is(err, poison.ErrConflict) {
			return conflict, nil
		}
		return done, err
	})
}

func discard(f *Fuzz) (string, func(h handle) (string, error)) {
	return f.onRow("poisoned_messages", "", func(h handle, row found) (string, error) {
		n, err := h.poison.Discard(h.ctx, h.db, row.ID)
		if err == nil && n != 1 {
			err = fmt.Errorf("got %d discarded, want 1", n)
		}
		return done, err
	})
}

const scheduled = "s"

func writeSchedule(f *Fuzz) (string, func(h handle) (string, error)) {
	n := f.next()
	return fmt.Sprintf(" of %d", n), func(h handle) (string, error) {
		_, err := h.scheduler.Upsert(h.ctx, h.db, item{n}, "* * * * *", "UTC", schedule.Name(scheduled))
		return done, err
	}
}

// onSchedule does something to the schedule, if there is one.
func onSchedule(do func(h handle, id int64) error) draw {
	return func(*Fuzz) (string, func(h handle) (string, error)) {
		return "", func(h handle) (string, error) {
			found, _, err := h.scheduler.List(h.ctx, h.db, schedule.Filter{Name: scheduled}, schedule.Page{})
			if err != nil || len(found) == 0 {
				return nothing, err
			}
			return done, do(h, found[0].ID)
		}
	}
}
