package overview

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/minutes"
)

// Overview is a summary of queues, processes and operations. Overviews are cached for two seconds,
// or fifty times their cost if that is longer. They therefore use at most a fiftieth of the
// database's time, however many clients ask. Operation and Finding are the types of package ops.
type Overview[Operation, Finding any] struct {
	At     time.Time     `json:"at"` // when it was made, on this process's clock
	Queues []admin.Queue `json:"queues"`
	// Minutes are the statistics of the last hour.
	Minutes []minutes.Stats `json:"minutes,omitempty"`
	// Failures are the 20 most recent failure groups.
	Failures []admin.FailureGroup `json:"failures,omitempty"`
	// Poisoners are the failure groups of the last poisoned message of each consumer.
	Poisoners []admin.FailureGroup `json:"-"`
	// Processes are those that are alive, and those lost within a day.
	Processes []admin.Process `json:"processes,omitempty"`
	// Unhandled are up to 20 kinds of messages that no live process handles. If messages with keys are
	// unhandled, only their consumer is listed, with an empty PayloadType. These entries do not count
	// towards the 20.
	Unhandled []admin.Unhandled `json:"unhandled,omitempty"`
	// Operations are those in progress or paused.
	Operations []Operation `json:"operations,omitempty"`
	// Unseen are the parts that could not be read this time. Their values are older, or empty.
	Unseen []Unseen `json:"unseen,omitempty"`
	// Outdated is the error of a part that could not be read because tables are missing or outdated, or
	// nil.
	Outdated error `json:"-"`
	// Attention is what needs attention: see ops.Session.Check.
	Attention []Finding `json:"-"`
}

// Unseen lists parts of an [Overview] that could not be read.
type Unseen struct {
	Parts []string `json:"parts"`
	// From is when the values shown instead were read, or zero if none are shown.
	From time.Time `json:"from,omitzero"`
	// Why is the error. A principal that may not read error texts sees only that the database did
	// not answer.
	Why string `json:"why"`
}

// String describes it for people, without the error.
func (u Unseen) String() string {
	if u.From.IsZero() {
		return fmt.Sprintf("Could not be read: %s.", strings.Join(u.Parts, ", "))
	}
	return fmt.Sprintf("Could not be read; shown as of %s: %s.", flow.Instant(u.From), strings.Join(u.Parts, ", "))
}

// Miss records parts that could not be read, and when the values shown instead were read.
func (o *Overview[Operation, Finding]) Miss(from time.Time, err error, parts ...string) {
	if errors.Is(err, dberr.ErrSchema) {
		o.Outdated = err
	}
	for i := range o.Unseen {
		if u := &o.Unseen[i]; u.From.Equal(from) {
			u.Parts = append(u.Parts, parts...)
			return
		}
	}
	o.Unseen = append(o.Unseen, Unseen{Parts: parts, From: from, Why: err.Error()})
}

// MissAgain records those of some parts that the last overview could not read either, where its values
// are shown. A part is given by the beginning of its name.
func (o *Overview[Operation, Finding]) MissAgain(last Overview[Operation, Finding], parts ...string) {
	for _, u := range last.Unseen {
		for _, missed := range u.Parts {
			if slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(missed, part) }) {
				o.Miss(u.From, errors.New(u.Why), missed)
			}
		}
	}
}

// From is when a part was last read.
func (o Overview[Operation, Finding]) From(part string) time.Time {
	if i := slices.IndexFunc(o.Unseen, func(u Unseen) bool { return slices.Contains(u.Parts, part) }); i >= 0 {
		return o.Unseen[i].From
	}
	return o.At
}

// Missing reports whether a part could not be read and no earlier values are shown.
func (o Overview[Operation, Finding]) Missing(part string) bool { return o.From(part).IsZero() }

// Programs counts the live programs in the overview, and those lost within a day. A program has
// one process in the overview for each Run.
func (o Overview[Operation, Finding]) Programs() (alive, lost int) {
	return len(Programs(o.Processes, admin.ProcessAlive)), len(Programs(o.Processes, admin.ProcessLost))
}
