package outbox

import (
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// only are the consumers for which a message is written.
func only(m *bus.Message, consumers []bus.Consumer) []bus.Consumer {
	if m.Recipients == nil {
		return consumers
	}
	return slices.DeleteFunc(slices.Clone(consumers), func(c bus.Consumer) bool {
		return !slices.ContainsFunc(c.Names(), func(name string) bool { return slices.Contains(m.Recipients, name) })
	})
}

// forwardedKey is the key of a message that one of its consumers passes on, and has no column
// for since it does not go by keys. An event has its stream.
func forwardedKey(m *bus.Message, consumers []bus.Consumer) string {
	forwards := func(c bus.Consumer) bool { return c.Forwards() && !c.Keyed() }
	if m.OrderingKey == "" || m.Event != nil || !slices.ContainsFunc(consumers, forwards) {
		return ""
	}
	return m.OrderingKey
}
