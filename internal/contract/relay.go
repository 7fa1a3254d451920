package contract

import (
	"reflect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// Relay describes what a forwarder publishes or a receiver accepts.
type Relay struct {
	Receives bool    `json:"receives,omitempty"` // else it publishes
	Source   string  `json:"source,omitempty"`   // of what it publishes
	Content  string  `json:"content_type,omitempty"`
	Routes   []Route `json:"routes"`
}

// Route describes the records of one payload type.
type Route struct {
	Payload     string `json:"payload"` // stored name
	Type        string `json:"type"`    // the record's type
	Destination string `json:"destination,omitempty"`

	goType, publicType     reflect.Type
	version, publicVersion int
	aliases                []string
}

// NewRoute describes the records of a payload's type. public is that of the records, if it is another
// one.
func NewRoute(r Route, goType, public reflect.Type, aliases ...string) Route {
	versionOf := func(t reflect.Type) int { return len(access.Upcasters(reflect.Zero(t).Interface())) + 1 }
	r.goType, r.version, r.aliases = goType, versionOf(goType), aliases
	if public != nil {
		r.publicType, r.publicVersion = public, versionOf(public)
	}
	return r
}

type relayKey struct{}

// SetRelay is the option of a relay's consumer that describes the relay.
func SetRelay(r Relay) bus.ConsumerOption {
	return func(c *bus.ConsumerConfig) { access.SetValue(c, relayKey{}, r) }
}

// RelayOf returns what [SetRelay] has set.
func RelayOf(c *bus.ConsumerConfig) (Relay, bool) {
	r, ok := access.Value(c, relayKey{}).(Relay)
	return r, ok
}
