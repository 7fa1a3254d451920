package console

import (
	"context"
	"net/http"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// action is a change of few things. A page says what it touches before it is done.
type action struct {
	name       string // in links and forms
	permission ops.Action
	of         subject
	verb       string // of the button
	says       string // what it does
	danger     bool   // it cannot be undone: a reason is required
	removes    bool   // the page of what it is about is gone afterwards
	direct     bool   // without a page in between
	do         actionFunc
}

// subject is what an action is about.
type subject string

const (
	pendingOnes  subject = "pending"
	poisonedOnes subject = "poisoned"
	consumedOnes subject = "consumed"
	oneConsumer  subject = "consumer"
	oneSchedule  subject = "schedule"
	oneVersion   subject = "projection"
	oneOperation subject = "operation"
)

// list is the path of the list that the subject is in, or empty.
func (s subject) list() string {
	return map[subject]string{
		pendingOnes: "messages", poisonedOnes: "poisoned", consumedOnes: "consumed", oneSchedule: "schedules",
		oneVersion: "projections", oneOperation: "operations",
	}[s]
}

// tab is the path of the tab that the list is in.
func (s subject) tab() string {
	if s == consumedOnes {
		return pendingOnes.list()
	}
	return s.list()
}

// actions are all of them.
func actions() []action {
	return []action{
		{name: "run_now", permission: ops.RunNow, of: pendingOnes, verb: "Run now", do: onPending("due", (*operator.Messages).RunNow),
			says: "The messages become due now and run when a process has free capacity."},
		{name: "reschedule", permission: ops.Reschedule, of: pendingOnes, verb: "Reschedule", do: reschedule,
			says: "The messages become due at the given time. A time in the past means now."},
		{name: "cancel", permission: ops.Cancel, of: pendingOnes, verb: "Cancel", do: onPending("cancelled", (*operator.Messages).Cancel),
			danger: true, removes: true,
			says: "The messages are deleted permanently, with their attempts and errors. Leased messages are not cancelled."},
		{name: "requeue", permission: ops.Requeue, of: poisonedOnes, verb: "Requeue", do: requeue, removes: true,
			says: "The messages become pending again, with new row ids and zero attempts."},
		{name: "discard", permission: ops.Discard, of: poisonedOnes, verb: "Discard", do: discard, removes: true,
			says: "The messages are deleted permanently, with their payloads and errors.", danger: true},
		{name: "repeat", permission: ops.Repeat, of: consumedOnes, verb: "Repeat", do: repeat,
			says: "The messages are produced again, with new ids, for the same consumers. Either all are repeated or none."},
		{name: "pause", permission: ops.Pause, of: oneConsumer, verb: "Pause", do: onConsumer("paused", (*operator.Consumers).Pause),
			says: "No process claims the consumer's messages until it is resumed. New messages are kept. Running messages finish."},
		{name: "resume", permission: ops.Resume, of: oneConsumer, verb: "Resume", do: onConsumer("resumed", (*operator.Consumers).Resume),
			says: "The consumer's messages are claimed again, as capacity allows."},
		{name: "probe", permission: ops.Probe, of: oneConsumer, verb: "Probe", do: onConsumer("probed", (*operator.Consumers).Probe),
			says: "One message runs now, although the circuit breaker is open. If the message succeeds, the breaker closes."},
		{name: "run_schedule", permission: ops.RunSchedule, of: oneSchedule, verb: "Run now",
			do:   onSchedule("fires", (*operator.Schedules).Trigger),
			says: "The schedule fires once now. The next fires do not change."},
		{name: "pause_schedule", permission: ops.PauseSchedule, of: oneSchedule, verb: "Pause",
			do:   onSchedule("schedule paused", (*operator.Schedules).Pause),
			says: "The schedule does not fire until it is resumed. Missed fires are skipped."},
		{name: "resume_schedule", permission: ops.ResumeSchedule, of: oneSchedule, verb: "Resume",
			do:   onSchedule("schedule resumed", (*operator.Schedules).Resume),
			says: "The schedule fires again. Missed fires are skipped."},
		{name: "update_schedule", permission: ops.UpdateSchedule, of: oneSchedule, verb: "Change", do: updateSchedule, danger: true,
			says: "The schedule fires by the new expression and zone. A program that writes the schedule at startup overwrites them."},
		{name: "delete_schedule", permission: ops.DeleteSchedule, of: oneSchedule, verb: "Delete", danger: true, removes: true,
			do:   onSchedule("deleted", (*operator.Schedules).Delete),
			says: "The schedule is deleted permanently. Its messages stay. A program that writes the schedule at startup recreates it."},
		{name: "resume_projection", permission: ops.ResumeProjection, of: oneVersion, verb: "Resume", do: resumeProjection,
			says: "Halted shards retry the event that failed."},
		{name: "undo", permission: ops.UndoOperation, of: oneOperation, verb: "Undo", direct: true,
			do: onOperation("undone", (*ops.Operations).Undo)},
		{name: "stop", permission: ops.StopOperation, of: oneOperation, verb: "Stop", do: onOperation("stopped", (*ops.Operations).Stop),
			says: "The operation ends and cannot be resumed. Its changes stay.", danger: true},
		{name: "continue", permission: ops.ResumeOperation, of: oneOperation, verb: "Resume",
			do:   onOperation("continued", resumeWith(0)),
			says: "The operation continues where it paused, without a canary."},
		{name: "continue_canary", permission: ops.ResumeOperation, of: oneOperation, verb: "Resume with a canary",
			do:   onOperation("continued", resumeWith(nextCanary)),
			says: "The operation requeues 10 messages first. The rest follows if at most a tenth of them fail again."},
	}
}

// actionRequest is an action with its arguments. It is the form of a confirmed action.
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
	back       string // the page where it was chosen
}

func (a *actionRequest) read(q *params) {
	name := q.text("do")
	for _, known := range actions() {
		if known.name == name {
			a.action = known
		}
	}
	switch a.action.of {
	case pendingOnes, poisonedOnes, consumedOnes:
		a.ids = q.ids("id")
		if len(a.ids) == 0 {
			q.fail("No message is selected. Go back and select messages.")
		}
	case oneConsumer:
		a.consumer = q.text("consumer")
		if a.consumer == "" {
			q.fail("consumer is missing.")
		}
	case oneSchedule:
		a.schedule = q.needID("schedule")
	case oneVersion:
		a.projection, a.version = q.text("projection"), q.version()
	case oneOperation:
		a.operation = q.needID("operation")
	default:
		q.fail("Unknown action.")
	}
	a.at, a.expression, a.zone, a.reason, a.back = q.instant("at"), q.text("expression"), q.text("zone"), q.text("reason"), q.raw("back")
}

func (a *actionRequest) submit(r *request) (link, error) {
	if a.action.danger && a.reason == "" {
		return link{}, httpError{http.StatusBadRequest, noReason("change")}
	}
	if a.action.permission == ops.UpdateSchedule {
		if _, wrong := operator.NextFires(a.expression, a.zone); wrong != "" {
			return link{}, shownPage{"confirm.html", http.StatusUnprocessableEntity, &confirmPage{args: *a}}
		}
	}
	result, err := a.action.do(r.Context(), r.session, a)
	if err != nil {
		return link{}, err
	}
	r.setFlash(result)
	return a.next(r.pageAt(a.back)), nil
}

// next is the page after the action: that of what was changed, or the one where it was chosen.
func (a *actionRequest) next(back link) link {
	switch {
	case len(a.ids) <= 1 && !a.action.removes:
		return a.about()
	case len(a.ids) > 0 && back.path != "" && back.path != "message":
		return back
	default:
		return linkTo(a.action.of.list())
	}
}

// about is the page of what the action is about.
func (a *actionRequest) about() link {
	switch a.action.of {
	case oneConsumer:
		return linkTo("consumer", "name", a.consumer)
	case oneSchedule:
		return linkTo("schedule", "id", a.schedule)
	case oneVersion:
		return linkTo("projection", "name", a.projection, "version", a.version)
	case oneOperation:
		return linkTo("operation", "id", a.operation)
	}
	if len(a.ids) == 1 {
		return linkTo("message", "id", a.ids[0])
	}
	return linkTo(a.action.of.list())
}

type actionFunc func(context.Context, *operator.Session, *actionRequest) (outcome, error)

func onPending(code string, do func(*operator.Messages, context.Context, string, ...int64) (admin.Result, error)) actionFunc {
	return func(ctx context.Context, s *operator.Session, a *actionRequest) (outcome, error) {
		result, err := do(s.Messages(), ctx, a.reason, a.ids...)
		return outcome{code, []int{result.Changed, len(result.Running), len(result.Missing)}}, err
	}
}

func reschedule(ctx context.Context, s *operator.Session, a *actionRequest) (outcome, error) {
	if a.at.IsZero() {
		return outcome{}, httpError{http.StatusBadRequest, "The due time is missing."}
	}
	return onPending("rescheduled", func(m *operator.Messages, ctx context.Context, reason string, ids ...int64) (admin.Result, error) {
		return m.Reschedule(ctx, reason, a.at, ids...)
	})(ctx, s, a)
}

func requeue(ctx context.Context, s *operator.Session, a *actionRequest) (outcome, error) {
	result, err := s.Poisoned().Requeue(ctx, a.reason, a.ids...)
	return outcome{"requeued", []int{result.Requeued, result.Conflicts, result.Missing}}, err
}

func discard(ctx context.Context, s *operator.Session, a *actionRequest) (outcome, error) {
	n, err := s.Poisoned().Discard(ctx, a.reason, a.ids...)
	return outcome{"discarded", []int{n, 0, len(a.ids) - n}}, err
}

func repeat(ctx context.Context, s *operator.Session, a *actionRequest) (outcome, error) {
	repeated, err := s.Consumed().Repeat(ctx, a.reason, a.ids...)
	return outcome{"repeated", []int{len(repeated)}}, err
}

func onConsumer(code string, do func(*operator.Consumers, context.Context, string, string) error) actionFunc {
	return func(ctx context.Context, s *operator.Session, a *actionRequest) (outcome, error) {
		return outcome{code: code}, do(s.Consumers(), ctx, a.consumer, a.reason)
	}
}

func onSchedule(code string, do func(*operator.Schedules, context.Context, string, int64) error) actionFunc {
	return func(ctx context.Context, s *operator.Session, a *actionRequest) (outcome, error) {
		return outcome{code: code}, do(s.Schedules(), ctx, a.reason, a.schedule)
	}
}

func updateSchedule(ctx context.Context, s *operator.Session, a *actionRequest) (outcome, error) {
	return outcome{code: "changed"}, s.Schedules().Update(ctx, a.reason, a.schedule, a.expression, a.zone)
}

func resumeProjection(ctx context.Context, s *operator.Session, a *actionRequest) (outcome, error) {
	n, err := s.Projections().Resume(ctx, a.reason, a.projection, a.version)
	return outcome{"shards", []int{n}}, err
}

// nextCanary is how many messages go first when an operation continues with a canary.
const nextCanary = 10

func resumeWith(canary int) func(*ops.Operations, context.Context, string, int64) (ops.Operation, error) {
	return func(o *ops.Operations, ctx context.Context, reason string, id int64) (ops.Operation, error) {
		return o.Resume(ctx, reason, id, canary)
	}
}

func onOperation(code string, do func(*ops.Operations, context.Context, string, int64) (ops.Operation, error)) actionFunc {
	return func(ctx context.Context, s *operator.Session, a *actionRequest) (outcome, error) {
		_, err := do(s.Operations(), ctx, a.reason, a.operation)
		return outcome{code: code}, err
	}
}
