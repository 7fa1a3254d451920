package flow

import (
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// Recipients returns those of a payload's consumers for which a message is written.
func Recipients(m *bus.Message, consumers []bus.Consumer) []bus.Consumer {
	if m.Recipients == nil {
		return consumers
	}
	return slices.DeleteFunc(slices.Clone(consumers), func(c bus.Consumer) bool {
		return !slices.ContainsFunc(access.Names(c), func(name string) bool { return slices.Contains(m.Recipients, name) })
	})
}
