package bus

import (
	"context"
	"fmt"
	"reflect"
	"slices"
)

// Event is the position of a recorded event in the event log; see package eventlog.
type Event struct {
	// Sequence identifies the event within its database. Sequences increase, with gaps, but events
	// do not become visible in this order.
	Sequence int64
	// Stream is the name of the stream. Version is the event's number in it, starting at 1.
	Stream  string
	Version int64
	// Position is the event's number in the whole log, starting at 1 without gaps. It is assigned
	// soon after the commit; until then it is 0.
	Position int64
	// Schema is the version of the stored payload's schema, starting at 1.
	Schema int
	// Replay is true when the event is delivered again on request. Backlog is true while a
	// projection works through a backlog. Both are false for a live event.
	Replay, Backlog bool
}

// EventTypes has the payloads that are recorded as events: an *eventlog.Types.
type EventTypes interface {
	// Upcast converts the stored text of an event to the newest schema. It returns an error for an
	// event that must not be read any more.
	Upcast(ctx context.Context, payloadType string, schema int, text []byte) ([]byte, error)
	// Lookup returns the Go type of an event type, and the names under which its events may be
	// stored, the current one first. For an unknown type both are nil.
	Lookup(payloadType string) (goType reflect.Type, names []string)
}

// adopt adds the events' former names to a consumer of events. It returns an error if the events
// have another Go type for a payload type.
func (r *Registry) adopt(c Consumer) (Consumer, error) {
	if r.events == nil || c.name == "" {
		return c, nil
	}
	own := c.payloadTypes()
	if !c.raw() {
		own = own[:1] // its aliases have the same type
	}
	c.config = c.config.clone()
	c.config.renamed = make(map[string]string)
	for _, payloadType := range own {
		goType, names := r.events.Lookup(payloadType)
		if goType == nil {
			continue
		}
		if !c.raw() && goType != c.goType {
			return c, fmt.Errorf(
				"bus: consumer %q: payload type %q is %s here and %s as an event", c.name, payloadType, fullName(c.goType),
				fullName(goType),
			)
		}
		for _, alias := range names[1:] {
			if !slices.Contains(c.payloadTypes(), alias) {
				c.config.PayloadAliases = append(c.config.PayloadAliases, alias)
				c.config.renamed[alias] = payloadType
			}
		}
	}
	return c, nil
}
