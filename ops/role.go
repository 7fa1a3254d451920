package ops

import (
	"errors"
	"fmt"
)

// Role is what a person may do. Each may do what those before it may.
type Role uint8

// The roles.
const (
	// None may do nothing.
	None Role = iota
	// Viewer sees names, numbers, times and kinds of errors.
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

// Principal is who asks. It is a value of the program's: of its login, or of the command line.
type Principal struct {
	// Name stands in the audit. It must not be empty.
	Name string
	Role Role
	// Allow narrows what the role allows: it is asked for each action, with the consumer that it
	// concerns, which is empty where it concerns several, or none. Nil allows all.
	Allow func(Action, string) bool
}

// Action is something that a person does. Its text stands in the audit.
type Action string

// The actions. The first two change nothing.
const (
	View             Action = "view"         // names, numbers, times
	Read             Action = "read content" // payloads, headers, texts of errors
	Export           Action = "export"
	Pause            Action = "pause"
	Resume           Action = "resume"
	RunNow           Action = "run now"
	Reschedule       Action = "reschedule"
	Cancel           Action = "cancel"
	Requeue          Action = "requeue"
	Discard          Action = "discard"
	Edit             Action = "edit"
	RunSchedule      Action = "run schedule"
	PauseSchedule    Action = "pause schedule"
	ResumeSchedule   Action = "resume schedule"
	DeleteSchedule   Action = "delete schedule"
	UpdateSchedule   Action = "update schedule"
	ResumeProjection Action = "resume projection"
	RetryParked      Action = "retry parked"
	Rebuild          Action = "rebuild"
	Promote          Action = "promote"
	StopOperation    Action = "stop operation" // also to undo one
)

// needs is the least role that an action takes. It is the only place that says so.
func needs(a Action) Role {
	switch a {
	case View:
		return Viewer
	case Read, Pause, Resume, RunNow, Reschedule, Requeue, RunSchedule, PauseSchedule, ResumeSchedule, ResumeProjection, RetryParked, StopOperation:
		return Operator
	default:
		return Administrator
	}
}

// ErrForbidden: the principal may not do that; use errors.Is.
var ErrForbidden = errors.New("forbidden")

// may is ErrForbidden unless the principal may do it to a consumer.
func (s *Seat) may(a Action, consumer string) error {
	who := s.who
	if role := needs(a); who.Role < role || who.Role > Administrator {
		return fmt.Errorf("%w: %q takes role %s, and %q has role %s", ErrForbidden, string(a), role, who.Name, who.Role)
	}
	if who.Allow != nil && !who.Allow(a, consumer) {
		return fmt.Errorf("%w: %q is not allowed %q of consumer %q", ErrForbidden, who.Name, string(a), consumer)
	}
	return nil
}
