package access

import (
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access/hook"
)

// CheckPayload decodes the payload for a consumer without consuming it.
func CheckPayload(c bus.Consumer, codec bus.Codec, payload []byte) error {
	return hook.Bus.CheckPayload(c, codec, payload)
}

// Reject makes NewRegistry reject the consumer. It is for options of other packages than bus. The
// text must state what is wrong and what is allowed.
func Reject(c *bus.ConsumerConfig, text string) { hook.Bus.Reject(c, text) }

// NewestName returns the current name of an event, given its current name or one that
// eventlog.Types has as a former name. It returns other payload types unchanged.
func NewestName(c *bus.ConsumerConfig, payloadType string) string {
	return hook.Bus.NewestName(c, payloadType)
}
