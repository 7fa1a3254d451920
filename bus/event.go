package bus

import (
	"context"
	"fmt"
	"reflect"
	"slices"
)

// Event is where a recorded event stands in the event log; see package eventlog.
type Event struct {
	// Sequence identifies the event within its database. Numbers grow, with
	// gaps, but events do not become visible in their order.
	Sequence int64
	// Stream is the name of the stream, and Version the event's place in it,
	// starting at 1.
	Stream  string
	Version int64
	// Position is the event's place in the whole log, starting at 1 and without
	// gaps. It is given soon after the commit: 0 means not yet.
	Position int64
	// Schema is the version of the payload's form as it is stored, starting at 1.
	Schema int
	// Replay is true when the event is delivered again on request, and Backlog while a
	// projection works off a backlog of events: when it is not live, either way.
	Replay, Backlog bool
}

const modeReplay = "replay"

// Mode is "replay", "catchup" or, for a live event and of nil, "": see [Message.Mode].
func (e *Event) Mode() string {
	switch {
	case e == nil:
		return ""
	case e.Replay:
		return modeReplay
	case e.Backlog:
		return "catchup"
	}
	return ""
}

// eventTypes knows the payloads that are recorded as events. *eventlog.Types
// does. It must be safe for concurrent use.
type eventTypes interface {
	// GoType returns the type of a payload by its stored or former name.
	GoType(payloadType string) (reflect.Type, bool)
	// Aliases returns the former names of a payload type.
	Aliases(payloadType string) []string
	// Upcast brings the stored text of an event to the newest schema. It returns an error for an
	// event that must not be read any more.
	Upcast(ctx context.Context, payloadType string, schema int, text []byte) ([]byte, error)
}

// adopt gives a consumer of events the events' former names, and reports a payload type
// that the events know as another Go type.
func (r *Registry) adopt(c Consumer) (Consumer, error) {
	if r.events == nil || c.name == "" {
		return c, nil
	}
	own := c.PayloadTypes()
	if !c.Raw() {
		own = own[:1] // its aliases are of the same type
	}
	c.config = c.config.clone()
	c.config.renamed = make(map[string]string)
	for _, payloadType := range own {
		goType, ok := r.events.GoType(payloadType)
		if ok && !c.Raw() && goType != c.goType {
			return c, fmt.Errorf("bus: consumer %q: payload type %q is %s here and %s as an event", c.name, payloadType, fullName(c.goType), fullName(goType))
		}
		for _, alias := range r.events.Aliases(payloadType) {
			if ok && !slices.Contains(c.PayloadTypes(), alias) {
				c.config.PayloadAliases = append(c.config.PayloadAliases, alias)
				c.config.renamed[alias] = payloadType
			}
		}
	}
	return c, nil
}
