package console

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// action is a change of few things, over a page that says what it touches.
type action struct {
	name       string // in links and forms
	permission ops.Action
	of         subject
	verb       string // of the button
	says       string // what comes of it
	danger     bool   // it cannot be taken back: a reason is required
	direct     bool   // without a page in between
	do         func(*request, actionRequest) (outcome, error)
}

// subject is what an action is about.
type subject string

const (
	pendingOnes  subject = "pending"
	poisonedOnes subject = "poisoned"
	oneConsumer  subject = "consumer"
	oneSchedule  subject = "schedule"
	oneVersion   subject = "projection"
	oneOperation subject = "operation"
)

// actionRequest is an action with its arguments.
type actionRequest struct {
	action     action
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

// actions are all of them.
func actions() []action {
	return []action{
		{name: "run_now", permission: ops.RunNow, of: pendingOnes, verb: "Run now", says: "They become due now, and run as soon as a process has room.", do: (*request).runNow},
		{name: "reschedule", permission: ops.Reschedule, of: pendingOnes, verb: "Reschedule", says: "They become due at the time that you say. One in the past means now.", do: (*request).reschedule},
		{name: "cancel", permission: ops.Cancel, of: pendingOnes, verb: "Cancel", says: "They are deleted for good, with their attempts and errors. One that a process holds runs on.", danger: true, do: (*request).cancel},
		{name: "requeue", permission: ops.Requeue, of: poisonedOnes, verb: "Requeue", says: "They wait again, under new ids, and no failed runs are counted any more.", do: (*request).requeue},
		{name: "discard", permission: ops.Discard, of: poisonedOnes, verb: "Discard", says: "They are deleted for good, with their payloads and errors.", danger: true, do: (*request).discard},
		{name: "pause", permission: ops.Pause, of: oneConsumer, verb: "Pause", says: "No process claims its messages any more until it is resumed. They are produced and kept as ever; what runs goes on.", do: (*request).pause},
		{name: "resume", permission: ops.Resume, of: oneConsumer, verb: "Resume", says: "Its messages are claimed again, at once, as many as there is room for.", do: (*request).resume},
		{name: "probe", permission: ops.Probe, of: oneConsumer, verb: "Try one now", says: "One of its messages runs now, although its breaker is open. If it is done the breaker closes, and the others run.", do: (*request).probe},
		{name: "run_schedule", permission: ops.RunSchedule, of: oneSchedule, verb: "Run now", says: "It fires once, beside its own times, which stay as they are.", do: scheduleAction((*ops.Session).RunSchedule)},
		{name: "pause_schedule", permission: ops.PauseSchedule, of: oneSchedule, verb: "Pause", says: "It does not fire until it is resumed. What it misses is skipped.", do: scheduleAction((*ops.Session).PauseSchedule)},
		{name: "resume_schedule", permission: ops.ResumeSchedule, of: oneSchedule, verb: "Resume", says: "It fires again, from its first time after now.", do: scheduleAction((*ops.Session).ResumeSchedule)},
		{name: "update_schedule", permission: ops.UpdateSchedule, of: oneSchedule, verb: "Change", says: "It fires at the times of the new expression. A program that writes this schedule at boot overwrites that then.", danger: true, do: (*request).updateSchedule},
		{name: "delete_schedule", permission: ops.DeleteSchedule, of: oneSchedule, verb: "Delete", says: "It is deleted for good. Messages that it has made stay, and a program that writes it at boot makes it anew.", danger: true, do: (*request).deleteSchedule},
		{name: "resume_projection", permission: ops.ResumeProjection, of: oneVersion, verb: "Resume", says: "Its halted shards try again at the event that they failed at.", do: (*request).resumeProjection},
		{name: "undo", permission: ops.UndoOperation, of: oneOperation, verb: "Undo", direct: true, do: (*request).undo},
		{name: "stop", permission: ops.StopOperation, of: oneOperation, verb: "Stop", says: "It ends where it is. What it has changed stays changed, and it cannot be continued.", danger: true, do: (*request).stop},
		{name: "continue", permission: ops.ResumeOperation, of: oneOperation, verb: "Continue", says: "It goes on where it has paused itself, without a canary.", do: (*request).goOnWith},
	}
}

// actionRequest reads the action and its arguments.
func (a *asked) actionRequest() (o actionRequest) {
	name := a.text("do")
	for _, d := range actions() {
		if d.name == name {
			o.action = d
		}
	}
	switch o.action.of {
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
func (v *request) do() (link, error) {
	a := v.sends()
	o := a.actionRequest()
	if o.action.danger && o.reason == "" {
		a.fail("Say why: the reason is missing. It is kept with the change, for others to see.")
	}
	if err := a.err(); err != nil {
		return link{}, err
	}
	came, err := o.action.do(v, o)
	if err != nil {
		return link{}, err
	}
	v.tell(came)
	return v.after(o), nil
}

// after is where to go on: what was changed, or where it was chosen.
func (v *request) after(o actionRequest) link {
	gone := slices.Contains([]string{"cancel", "discard", "requeue", "delete_schedule"}, o.action.name) && v.form != nil
	switch o.action.of {
	case pendingOnes, poisonedOnes:
		if len(o.ids) == 1 && !gone {
			return linkTo("message", "id", o.ids[0])
		}
		if to := v.back(v.form.Get("back")); to.path != "" && to.path != "message" {
			return to
		}
		if o.action.of == poisonedOnes {
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

func (v *request) runNow(o actionRequest) (outcome, error) {
	result, err := v.session.Messages().RunNow(v.ctx(), o.reason, o.ids...)
	return outcome{"due", []int{result.Changed, len(result.Running), len(result.Missing)}}, err
}

func (v *request) reschedule(o actionRequest) (outcome, error) {
	if o.at.IsZero() {
		return outcome{}, httpError{400, "Say when the messages are to be due."}
	}
	result, err := v.session.Messages().Reschedule(v.ctx(), o.reason, o.at, o.ids...)
	return outcome{"rescheduled", []int{result.Changed, len(result.Running), len(result.Missing)}}, err
}

func (v *request) cancel(o actionRequest) (outcome, error) {
	result, err := v.session.Messages().Cancel(v.ctx(), o.reason, o.ids...)
	return outcome{"cancelled", []int{result.Changed, len(result.Running), len(result.Missing)}}, err
}

func (v *request) requeue(o actionRequest) (outcome, error) {
	result, err := v.session.Poisoned().Requeue(v.ctx(), o.reason, o.ids...)
	return outcome{"requeued", []int{result.Requeued, result.Conflicts, result.Missing}}, err
}

func (v *request) discard(o actionRequest) (outcome, error) {
	n, err := v.session.Poisoned().Discard(v.ctx(), o.reason, o.ids...)
	return outcome{"discarded", []int{n, 0, len(o.ids) - n}}, err
}

func (v *request) pause(o actionRequest) (outcome, error) {
	return outcome{code: "paused"}, v.session.Consumers().Pause(v.ctx(), o.consumer, o.reason)
}

func (v *request) resume(o actionRequest) (outcome, error) {
	return outcome{code: "resumed"}, v.session.Consumers().Resume(v.ctx(), o.consumer, o.reason)
}

func (v *request) probe(o actionRequest) (outcome, error) {
	return outcome{code: "probed"}, v.session.Consumers().Probe(v.ctx(), o.consumer, o.reason)
}

func (v *request) updateSchedule(o actionRequest) (outcome, error) {
	return outcome{code: "changed"}, v.session.Schedules().Update(v.ctx(), o.reason, o.schedule, o.expression, o.zone)
}

func (v *request) deleteSchedule(o actionRequest) (outcome, error) {
	return outcome{code: "deleted"}, v.session.Schedules().Delete(v.ctx(), o.reason, o.schedule)
}

func (v *request) resumeProjection(o actionRequest) (outcome, error) {
	n, err := v.session.Projections().Resume(v.ctx(), o.reason, o.projection, o.version)
	return outcome{"shards", []int{n}}, err
}

func (v *request) undo(o actionRequest) (outcome, error) {
	_, err := v.session.Operations().Undo(v.ctx(), o.reason, o.operation)
	return outcome{code: "undone"}, err
}

func (v *request) stop(o actionRequest) (outcome, error) {
	_, err := v.session.Operations().Stop(v.ctx(), o.reason, o.operation)
	return outcome{code: "stopped"}, err
}

func (v *request) goOnWith(o actionRequest) (outcome, error) {
	_, err := v.session.Operations().Resume(v.ctx(), o.reason, o.operation)
	return outcome{code: "continued"}, err
}
