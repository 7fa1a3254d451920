package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const unregisteredEvery = time.Minute

// declarationChecker warns once of each difference between what the programs that share the
// database have registered.
type declarationChecker struct {
	store      *store.Store
	db         *bun.DB
	config     *ProcessorConfig
	registry   *bus.Registry
	counters   *counters
	catalog    *catalog
	outage     *outage.Outage
	started    time.Time // of the run
	warned     sync.Map  // kinds of messages without a consumer here that were reported
	undeclared sync.Map  // consumers of payload types that were reported
}

// loop looks for messages whose consumer or payload type is not registered here. It is separate
// from the polls because it may be slow.
func (dc *declarationChecker) loop(ctx context.Context) {
	for wait := unregisteredEvery / 30; outage.Pause(ctx, wait); wait = unregisteredEvery {
		if dc.outage.Err() == nil {
			dc.report(ctx)
		}
	}
}

// report warns once of each kind. The messages stay in place: another program may consume them.
func (dc *declarationChecker) report(ctx context.Context) {
	found, _ := ask(ctx, dc.outage, "look for unregistered messages", statementTimeout, func(ctx context.Context) ([]store.Unhandled, error) {
		return dc.store.Claims.Unhandled(ctx, dc.db, dc.catalog.wants)
	})
	for _, s := range found {
		dc.warn(s)
	}
	names, _ := ask(ctx, dc.outage, "look for messages with keys", statementTimeout,
		func(ctx context.Context) ([]string, error) { return dc.store.Claims.KeyedConsumers(ctx, dc.db) })
	for _, name := range dc.catalog.adopt(names) {
		dc.warn(store.Unhandled{ConsumerType: name, PayloadType: "any with a key"})
	}
}

func (dc *declarationChecker) warn(s store.Unhandled) {
	if _, before := dc.warned.LoadOrStore(s, true); !before && !dc.declared(s) {
		dc.config.Logger.Warn("pending messages have no consumer registered here", "consumer", s.ConsumerType, "payload_type", s.PayloadType)
	}
}

// declared reports whether this program has declared the consumer: see bus.Declare.
func (dc *declarationChecker) declared(s store.Unhandled) bool {
	is := func(c bus.Consumer) bool { return slices.Contains(access.Names(c), s.ConsumerType) }
	return slices.ContainsFunc(access.ConsumersOf(dc.registry, s.PayloadType), is)
}

// checkRoutes warns once of each consumer for which the message's producer writes no messages.
func (dc *declarationChecker) checkRoutes(m *bus.Message) {
	declared, ok := m.Headers[store.ConsumersHeader]
	if !ok {
		return
	}
	delete(m.Headers, store.ConsumersHeader)
	if m.CreatedAt.Before(dc.started) { // its producer may be gone
		return
	}
	known := make(map[string]bool)
	for name := range strings.SplitSeq(declared, "\n") {
		known[name] = true
	}
consumers:
	for _, c := range dc.catalog.byPayload[m.PayloadType] {
		for _, name := range access.Names(c.Consumer) {
			if known[name] {
				continue consumers
			}
		}
		if _, before := dc.undeclared.LoadOrStore([2]string{c.Name(), m.PayloadType}, true); !before {
			dc.config.Logger.Warn("producer writes no messages for this consumer, add bus.Declare to the producer's program",
				"consumer", c.Name(), "payload_type", m.PayloadType)
		}
	}
}

// checkKey counts messages without a key of consumers that use keys, and warns once.
func (dc *declarationChecker) checkKey(t *task) {
	if t.row.Lane != 0 || !access.Keyed(&t.consumer.settings) {
		return
	}
	dc.counters.unkeyed.Add(1)
	if _, before := dc.warned.LoadOrStore(t.consumer.Name(), true); !before {
		dc.config.Logger.Warn("messages have no key, so no order, concurrency or rate of keys applies to them: "+
			"pass the consumer's key options to bus.Declare in the program that produces them", "consumer", t.consumer.Name())
	}
}
