package engine

import (
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// checkRoutes warns once of each consumer for which the message's producer writes no messages.
func (r *run) checkRoutes(m *bus.Message) {
	said, ok := m.Headers[store.ConsumersHeader]
	if !ok {
		return
	}
	delete(m.Headers, store.ConsumersHeader)
	if m.CreatedAt.Before(r.started) { // its producer may be gone
		return
	}
	known := make(map[string]bool)
	for name := range strings.SplitSeq(said, "\n") {
		known[name] = true
	}
consumers:
	for _, c := range r.dispatcher.catalog.byPayload[m.PayloadType] {
		for _, name := range c.Names() {
			if known[name] {
				continue consumers
			}
		}
		if _, before := r.undeclared.LoadOrStore([2]string{c.Name(), m.PayloadType}, true); !before {
			r.config.Logger.Warn("a producer writes messages that this consumer does not get: declare it there, with bus.Declare",
				"consumer", c.Name(), "payload_type", m.PayloadType)
		}
	}
}

// checkOrder counts messages of ordered consumers without a key, and warns once.
func (r *run) checkOrder(t *task) {
	if t.row.Lane != 0 || !t.consumer.Ordered() {
		return
	}
	r.counters.unordered.Add(1)
	if _, before := r.warned.LoadOrStore(t.consumer.Name(), true); !before {
		r.config.Logger.Warn("messages of an ordered consumer have no key and run in any order: a program that produces them declares the consumer without Ordered",
			"consumer", t.consumer.Name())
	}
}
