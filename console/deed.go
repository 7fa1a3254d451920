package console

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// deed is a change of few things, over a page that says what it touches.
type deed struct {
	name   string // in links and forms
	action ops.Action
	of     subject
	verb   string // of the button
	says   string // what comes of it
	danger bool   // it cannot be taken back: a reason is required
	direct bool   // without a page in between
	do     func(*visit, order) (outcome, error)
}

// subject is what a deed is about.
type subject string

const (
	pendingOnes  subject = "pending"
	poisonedOnes subject = "poisoned"
	oneConsumer  subject = "consumer"
	oneSchedule  subject = "schedule"
	oneVersion   subject = "projection"
	oneOperation subject = "operation"
)

// order is a deed as it was asked for.
type order struct {
	deed       deed
	ids        []int64
	consumer   string
	schedule   int64
	projection string
	version    int
	operation  int64
	at         time.Time
	expression string
	zone       string
	reason     string
}

// deeds are all of them.
func deeds() []deed {
	return []deed{
		{name: "run_now", action: ops.RunNow, of: pendingOnes, verb: "Run now", says: "They become due now, and run as soon as a process has room.", do: (*visit).runNow},
		{name: "reschedule", action: ops.Reschedule, of: pendingOnes, verb: "Reschedule", says: "They become due at the time that you say. One in the past means now.", do: (*visit).reschedule},
		{name: "cancel", action: ops.Cancel, of: pendingOnes, verb: "Cancel", says: "They are deleted for good, with their attempts and errors. One that a process holds runs on.", danger: true, do: (*visit).cancel},
		{name: "requeue", action: ops.Requeue, of: poisonedOnes, verb: "Requeue", says: "They wait again, under new ids, and no failed runs are counted any more.", do: (*visit).requeue},
		{name: "discard", action: ops.Discard, of: poisonedOnes, verb: "Discard", says: "They are deleted for good, with their payloads and errors.", danger: true, do: (*visit).discard},
		{name: "pause", action: ops.Pause, of: oneConsumer, verb: "Pause", says: "No process claims its messages any more until it is resumed. They are produced and kept as ever; what runs goes on.", do: (*visit).pause},
		{name: "resume", action: ops.Resume, of: oneConsumer, verb: "Resume", says: "Its messages are claimed again, at once, as many as there is room for.", do: (*visit).resume},
		{name: "probe", action: ops.Probe, of: oneConsumer, verb: "Try one now", says: "One of its messages runs now, although its breaker is open. If it is done the breaker closes, and the others run.", do: (*visit).probe},
		{name: "run_schedule", action: ops.RunSchedule, of: oneSchedule, verb: "Run now", says: "It fires once, beside its own times, which stay as they are.", do: scheduleDeed((*ops.Session).RunSchedule)},
		{name: "pause_schedule", action: ops.PauseSchedule, of: oneSchedule, verb: "Pause", says: "It does not fire until it is resumed. What it misses is skipped.", do: scheduleDeed((*ops.Session).PauseSchedule)},
		{name: "resume_schedule", action: ops.ResumeSchedule, of: oneSchedule, verb: "Resume", says: "It fires again, from its first time after now.", do: scheduleDeed((*ops.Session).ResumeSchedule)},
		{name: "update_schedule", action: ops.UpdateSchedule, of: oneSchedule, verb: "Change", says: "It fires at the times of the new expression. A program that writes this schedule at boot overwrites that then.", danger: true, do: (*visit).updateSchedule},
		{name: "delete_schedule", action: ops.DeleteSchedule, of: oneSchedule, verb: "Delete", says: "It is deleted for good. Messages that it has made stay, and a program that writes it at boot makes it anew.", danger: true, do: (*visit).deleteSchedule},
		{name: "resume_projection", action: ops.ResumeProjection, of: oneVersion, verb: "Resume", says: "Its halted shards try again at the event that they failed at.", do: (*visit).resumeProjection},
		{name: "undo", action: ops.UndoOperation, of: oneOperation, verb: "Undo", direct: true, do: (*visit).undo},
		{name: "stop", action: ops.StopOperation, of: oneOperation, verb: "Stop", says: "It ends where it is. What it has changed stays changed, and it cannot be continued.", danger: true, do: (*visit).stop},
		{name: "continue", action: ops.ResumeOperation, of: oneOperation, verb: "Continue", says: "It goes on where it has paused itself, without a canary.", do: (*visit).goOnWith},
	}
}

// order reads what is asked for.
func (a *asked) order() (o order) {
	name := a.text("do")
	for _, d := range deeds() {
		if d.name == name {
			o.deed = d
		}
	}
	switch o.deed.of {
	case pendingOnes, poisonedOnes:
		if o.ids = a.ids("id"); len(o.ids) == 0 {
			a.fail("No message is chosen. Go back, and choose some.")
		}
	case oneConsumer:
		if o.consumer = a.text("consumer"); o.consumer == "" {
			a.fail("consumer is missing.")
		}
	case oneSchedule:
		o.schedule = a.needID("schedule")
	case oneVersion:
		o.projection, o.version = a.text("projection"), a.small("version", 1<<31-1, 1)
	case oneOperation:
		o.operation = a.needID("operation")
	default:
		a.fail("There is no such action.")
	}
	o.at, o.expression, o.zone, o.reason = a.instant("at"), a.text("expression"), a.text("zone"), a.text("reason")
	return o
}

// do changes what a confirmed form says.
func (v *visit) do() (link, error) {
	a := v.sends()
	o := a.order()
	if o.deed.danger && o.reason == "" {
		a.fail("Say why: the reason is missing. It is kept with the change, for others to see.")
	}
	if err := a.err(); err != nil {
		return link{}, err
	}
	came, err := o.deed.do(v, o)
	if err != nil {
		return link{}, err
	}
	v.tell(came)
	return v.after(o), nil
}

// after is where to go on: what was changed, or where it was chosen.
func (v *visit) after(o order) link {
	gone := slices.Contains([]string{"cancel", "discard", "requeue", "delete_schedule"}, o.deed.name) && v.form != nil
	switch o.deed.of {
	case pendingOnes, poisonedOnes:
		if len(o.ids) == 1 && !gone {
			return linkTo("message", "id", o.ids[0])
		}
		if to := v.back(v.form.Get("back")); to.path != "" && to.path != "message" {
			return to
		}
		if o.deed.of == poisonedOnes {
			return linkTo("poisoned")
		}
		return linkTo("messages")
	case oneConsumer:
		return linkTo("consumer", "name", o.consumer)
	case oneSchedule:
		if gone {
			return linkTo("schedules")
		}
		return linkTo("schedule", "id", o.schedule)
	case oneVersion:
		return linkTo("projection", "name", o.projection, "version", o.version)
	default:
		return linkTo("operation", "id", o.operation)
	}
}

func (v *visit) runNow(o order) (outcome, error) {
	result, err := v.session.RunMessages(v.ctx(), o.reason, o.ids...)
	return outcome{"due", []int{result.Changed, len(result.Running), len(result.Missing)}}, err
}

func (v *visit) reschedule(o order) (outcome, error) {
	if o.at.IsZero() {
		return outcome{}, refusal{400, "Say when the messages are to be due."}
	}
	result, err := v.session.Reschedule(v.ctx(), o.reason, o.at, o.ids...)
	return outcome{"rescheduled", []int{result.Changed, len(result.Running), len(result.Missing)}}, err
}

func (v *visit) cancel(o order) (outcome, error) {
	result, err := v.session.Cancel(v.ctx(), o.reason, o.ids...)
	return outcome{"cancelled", []int{result.Changed, len(result.Running), len(result.Missing)}}, err
}

func (v *visit) requeue(o order) (outcome, error) {
	result, err := v.session.Requeue(v.ctx(), o.reason, o.ids...)
	return outcome{"requeued", []int{result.Requeued, result.Conflicts, result.Missing}}, err
}

func (v *visit) discard(o order) (outcome, error) {
	n, err := v.session.Discard(v.ctx(), o.reason, o.ids...)
	return outcome{"discarded", []int{n, 0, len(o.ids) - n}}, err
}

func (v *visit) pause(o order) (outcome, error) {
	return outcome{code: "paused"}, v.session.Pause(v.ctx(), o.consumer, o.reason)
}

func (v *visit) resume(o order) (outcome, error) {
	return outcome{code: "resumed"}, v.session.Resume(v.ctx(), o.consumer, o.reason)
}

func (v *visit) probe(o order) (outcome, error) {
	return outcome{code: "probed"}, v.session.Probe(v.ctx(), o.consumer, o.reason)
}

func (v *visit) updateSchedule(o order) (outcome, error) {
	return outcome{code: "changed"}, v.session.UpdateSchedule(v.ctx(), o.reason, o.schedule, o.expression, o.zone)
}

func (v *visit) deleteSchedule(o order) (outcome, error) {
	return outcome{code: "deleted"}, v.session.DeleteSchedule(v.ctx(), o.reason, o.schedule)
}

func (v *visit) resumeProjection(o order) (outcome, error) {
	n, err := v.session.ResumeProjection(v.ctx(), o.reason, o.projection, o.version)
	return outcome{"shards", []int{n}}, err
}

func (v *visit) undo(o order) (outcome, error) {
	_, err := v.session.Undo(v.ctx(), o.reason, o.operation)
	return outcome{code: "undone"}, err
}

func (v *visit) stop(o order) (outcome, error) {
	_, err := v.session.Stop(v.ctx(), o.reason, o.operation)
	return outcome{code: "stopped"}, err
}

func (v *visit) goOnWith(o order) (outcome, error) {
	_, err := v.session.Continue(v.ctx(), o.reason, o.operation)
	return outcome{code: "continued"}, err
}
