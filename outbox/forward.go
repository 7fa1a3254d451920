package outbox

import (
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// forwardedKey returns the key of a message for a consumer that forwards it but has no key column,
// since it does not use keys. An event has its stream instead.
func forwardedKey(m *bus.Message, consumers []bus.Consumer) string {
	forwards := func(c bus.Consumer) bool {
		config := c.Config()
		return config.Forwards && !access.Keyed(&config)
	}
	if m.OrderingKey == "" || m.Event != nil || !slices.ContainsFunc(consumers, forwards) {
		return ""
	}
	return m.OrderingKey
}
