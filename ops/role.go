package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// Role is what a principal may do. Each role includes those before it.
type Role uint8

// The roles.
const (
	// None allows nothing.
	None Role = iota
	// Viewer sees names, counts, times and kinds of errors.
	Viewer
	// Operator also sees error texts and contents, through [Config].Redact. It may pause, resume,
	// probe, run now, reschedule and requeue; run, pause and resume schedules; resume projections and
	// retry parked events; and undo, stop, resume and change the rate of operations.
	Operator
	// Administrator may do everything else: export, cancel, discard, edit, update and delete
	// schedules, rebuild and promote projections.
	Administrator
)

// String returns the role's name.
func (r Role) String() string {
	switch r {
	case None:
		return "none"
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	case Administrator:
		return "administrator"
	default:
		return fmt.Sprintf("role %d", uint8(r))
	}
}

// Principal is the user of a [Session]. The program makes it, from its login or its command line.
type Principal struct {
	// Name is written to the audit. It must not be empty.
	Name string
	Role Role
	// Allow narrows what the role allows. It is called for each action with the consumer concerned,
	// by its present name if the service's registry has it. The consumer is empty if the action
	// concerns several or none. A change of several consumers calls Allow with an empty consumer
	// first, and then with each affected one; one refusal forbids the change. A query of several
	// consumers calls it once with an empty consumer. A panic, or no answer within 10 s, refuses the
	// action. Nil allows everything.
	Allow func(Action, string) bool
}

// Action is something that a principal does. Its text is written to the audit.
type Action string

// String returns the action in words: "run now".
func (a Action) String() string { return strings.ReplaceAll(string(a), "_", " ") }

// The actions. View and Read change nothing.
const (
	View             Action = "view"         // names, counts, times
	Read             Action = "read_content" // payloads, headers, texts of errors
	Export           Action = "export"
	Pause            Action = "pause"
	Resume           Action = "resume"
	Probe            Action = "probe"
	RunNow           Action = "run_now"
	Reschedule       Action = "reschedule"
	Cancel           Action = "cancel"
	Requeue          Action = "requeue"
	Discard          Action = "discard"
	Edit             Action = "edit"
	Repeat           Action = "repeat" // a consumed message
	RunSchedule      Action = "run_schedule"
	PauseSchedule    Action = "pause_schedule"
	ResumeSchedule   Action = "resume_schedule"
	DeleteSchedule   Action = "delete_schedule"
	UpdateSchedule   Action = "update_schedule"
	ResumeProjection Action = "resume_projection"
	RetryParked      Action = "retry_parked"
	Rebuild          Action = "rebuild"
	Promote          Action = "promote"

	// Actions on operations. ResumeOperation and SetOperationRate also need the role of the
	// operation's own action.
	UndoOperation    Action = "undo_operation"
	StopOperation    Action = "stop_operation"
	ResumeOperation  Action = "resume_operation"
	SetOperationRate Action = "set_operation_rate"
)

// needs is the lowest role that may do an action.
func needs(a Action) Role {
	switch a {
	case View:
		return Viewer
	case Read, Pause, Resume, Probe, RunNow, Reschedule, Requeue, Repeat,
		RunSchedule, PauseSchedule, ResumeSchedule, ResumeProjection, RetryParked,
		UndoOperation, StopOperation, ResumeOperation, SetOperationRate:
		return Operator
	default:
		return Administrator
	}
}

// ErrForbidden is returned when the principal may not do an action; use errors.Is.
var ErrForbidden = errors.New("forbidden")

// may returns [ErrForbidden] unless the principal may do an action to a consumer. The consumer is
// empty if the action concerns several or none.
func (p Principal) may(a Action, consumer string) error {
	if p.Name == "" {
		p.Role = None
	}
	if role := needs(a); p.Role < role || p.Role > Administrator {
		return fmt.Errorf("%w: %q needs role %s, but %q has role %s", ErrForbidden, string(a), role, p.Name, p.Role)
	}
	if p.Allow != nil && !p.Allow(a, consumer) {
		return fmt.Errorf("%w: %q may not do %q on consumer %q", ErrForbidden, p.Name, string(a), consumer)
	}
	return nil
}

// may asks Allow for the present name of a consumer: a former name is no way around it.
func (s access) may(a Action, consumer string) error {
	if s.who.Allow == nil {
		return s.who.may(a, consumer)
	}
	if c, known := s.service.config.Registry.Consumer(consumer); known {
		consumer = c.Name()
	}
	_, err := isolate.Ask(context.Background(), "Principal.Allow", &s.service.unanswered, askTime, func(context.Context) (struct{}, error) {
		return struct{}{}, s.who.may(a, consumer)
	})
	return err
}

// mayEach returns ErrForbidden unless the principal may do the action to each of the consumers.
// For several or none, it must also be allowed without a consumer.
func (s access) mayEach(a Action, consumers []string) error {
	if len(consumers) != 1 {
		if err := s.may(a, ""); err != nil {
			return err
		}
	}
	for _, name := range consumers {
		if err := s.may(a, name); err != nil {
			return err
		}
	}
	return nil
}
