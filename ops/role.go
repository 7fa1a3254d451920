package ops

import (
	"errors"
	"fmt"
	"strings"
)

// Role is what a person may do. Each may do what those before it may.
type Role uint8

// The roles.
const (
	// None may do nothing.
	None Role = iota
	// Viewer sees names, counts, times and kinds of errors.
	Viewer
	// Operator also sees texts of errors and contents, through [Config].Redact, and does what can be
	// taken back: pause and resume, run now, reschedule, requeue.
	Operator
	// Administrator also does what cannot: cancel, discard, edit, export, change and delete schedules,
	// rebuild and promote projections.
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

// Principal is the user of a [Session]. It is a value of the program's: of its login, or of the
// command line.
type Principal struct {
	// Name stands in the audit. It must not be empty.
	Name string
	Role Role
	// Allow narrows what the role allows: it is asked for each action, with the consumer that it
	// concerns, which is empty where it concerns several, or none. A change of several is asked for with
	// an empty one first, and then with each that it touches: it is forbidden where one of them is. To
	// look at several at once is asked for with an empty one. Nil allows all.
	Allow func(Action, string) bool
}

// Action is something that a person does. Its text stands in the audit.
type Action string

// String returns the action in words: "run now".
func (a Action) String() string { return strings.ReplaceAll(string(a), "_", " ") }

// The actions. The first two change nothing.
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
	RunSchedule      Action = "run_schedule"
	PauseSchedule    Action = "pause_schedule"
	ResumeSchedule   Action = "resume_schedule"
	DeleteSchedule   Action = "delete_schedule"
	UpdateSchedule   Action = "update_schedule"
	ResumeProjection Action = "resume_projection"
	RetryParked      Action = "retry_parked"
	Rebuild          Action = "rebuild"
	Promote          Action = "promote"

	// What is decided on operations. To continue one and to change its rate takes its own role, too.
	UndoOperation    Action = "undo_operation"
	StopOperation    Action = "stop_operation"
	ResumeOperation  Action = "resume_operation"
	SetOperationRate Action = "set_operation_rate"
)

// needs is the least role that an action takes. It is the only place that says so.
func needs(a Action) Role {
	switch a {
	case View:
		return Viewer
	case Read, Pause, Resume, Probe, RunNow, Reschedule, Requeue, RunSchedule, PauseSchedule, ResumeSchedule, ResumeProjection, RetryParked,
		UndoOperation, StopOperation, ResumeOperation, SetOperationRate:
		return Operator
	default:
		return Administrator
	}
}

// ErrForbidden: the principal may not do that; use errors.Is.
var ErrForbidden = errors.New("forbidden")

// May returns [ErrForbidden] unless the principal may do that to a consumer, which is empty if the
// action is about several, or none. Each method of [Session] asks it. It is for showing what a
// principal can do.
func (p Principal) May(a Action, consumer string) error {
	if p.Name == "" {
		p.Role = None
	}
	if role := needs(a); p.Role < role || p.Role > Administrator {
		return fmt.Errorf("%w: %q takes role %s, and %q has role %s", ErrForbidden, string(a), role, p.Name, p.Role)
	}
	if p.Allow != nil && !p.Allow(a, consumer) {
		return fmt.Errorf("%w: %q is not allowed %q of consumer %q", ErrForbidden, p.Name, string(a), consumer)
	}
	return nil
}

func (s *Session) may(a Action, consumer string) error { return s.who.May(a, consumer) }

// mayEach is ErrForbidden unless the principal may do it to each of the consumers, and for several
// or none also without a consumer.
func (s *Session) mayEach(a Action, consumers []string) error {
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
