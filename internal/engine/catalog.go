package engine

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// catalog is the consumers of a processor, by their names and what they want. It does not change
// after [newCatalog]; only the state of its consumers does, which mu guards.
type catalog struct {
	consumers []*consumer
	wants     []store.Want           // each name of a consumer with each payload type
	owner     []*consumer            // of each want
	byName    map[string]*consumer   // also by former names
	byPayload map[string][]*consumer // also by former payload types
	mu        *sync.Mutex            // the dispatcher's
}

func newCatalog(consumers []*consumer) catalog {
	ct := catalog{consumers: consumers, byName: make(map[string]*consumer), byPayload: make(map[string][]*consumer)}
	for _, c := range consumers {
		for _, want := range flow.Wants(c.Consumer) {
			c.wants = append(c.wants, len(ct.wants))
			ct.wants, ct.owner = append(ct.wants, want), append(ct.owner, c)
		}
		for _, name := range access.Names(c.Consumer) {
			ct.byName[name] = c
		}
		if access.Keyed(&c.settings) {
			c.lanes = lanesOf(c)
		}
		for _, payloadType := range access.PayloadTypes(c.Consumer) {
			ct.byPayload[payloadType] = append(ct.byPayload[payloadType], c)
		}
	}
	return ct
}

// wantsOf returns the wants of the named consumers, or all of them.
func (ct *catalog) wantsOf(names []string) (wants []store.Want, err error) {
	if len(names) == 0 {
		return ct.wants, nil
	}
	for _, name := range names {
		c, ok := ct.byName[name]
		if !ok {
			return nil, fmt.Errorf("consumer %q: %w", name, bus.ErrNoConsumer)
		}
		for _, want := range c.wants {
			wants = append(wants, ct.wants[want])
		}
	}
	return wants, nil
}

// lanesOf returns the lanes of a claim that brought messages with keys, else nil.
func (ct *catalog) lanesOf(c store.Claim) *lanes {
	if len(c.Messages) == 0 || c.Messages[0].Lane == 0 {
		return nil
	}
	name := c.Messages[0].ConsumerType
	ct.mu.Lock()
	defer ct.mu.Unlock()
	for _, l := range ct.byName[name].lanes {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// adopt adds lanes to consumers that are no longer keyed but have keyed messages. It returns the
// names of consumers that are not registered here.
func (ct *catalog) adopt(names []string) (unknown []string) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	for _, name := range names {
		c, ok := ct.byName[name]
		switch {
		case !ok:
			unknown = append(unknown, name)
		case c.lanes == nil:
			c.lanes = lanesOf(c)
		}
	}
	return unknown
}

// allLanes returns the lanes of all consumers.
func (ct *catalog) allLanes() (all []*lanes) {
	for _, c := range ct.consumers {
		all = append(all, c.lanes...)
	}
	return all
}

// lanesAmong returns the lanes of wanted consumers.
func (ct *catalog) lanesAmong(wants []store.Want) (all []*lanes) {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	wanted := ct.amongLocked(wants)
	return slices.DeleteFunc(ct.allLanes(), func(l *lanes) bool { return !wanted(l.of) })
}

// amongLocked returns a function that reports whether a consumer is wanted.
func (ct *catalog) amongLocked(wants []store.Want) func(*consumer) bool {
	return func(c *consumer) bool {
		return slices.ContainsFunc(wants, func(w store.Want) bool { return ct.byName[w.Consumer] == c })
	}
}

// stuckLocked returns where to look for crashed keyed messages of the consumers that may start one.
func (ct *catalog) stuckLocked(may func(*consumer) bool) (stuck []store.Lanes) {
	for _, l := range ct.allLanes() {
		if l.stuck && may(l.of) {
			stuck = append(stuck, store.Lanes{Source: l.Source})
		}
	}
	return stuck
}

// stuckOf is stuckLocked for wanted consumers.
func (ct *catalog) stuckOf(wants []store.Want) []store.Lanes {
	ct.mu.Lock()
	defer ct.mu.Unlock()
	return ct.stuckLocked(ct.amongLocked(wants))
}

// activeLocked reports whether any consumer may have messages.
func (ct *catalog) activeLocked() bool {
	return slices.ContainsFunc(ct.consumers, (*consumer).pending)
}

// breakers returns the circuit breakers by their stored names.
func (ct *catalog) breakers() map[string]*breaker {
	all := make(map[string]*breaker)
	for _, c := range ct.consumers {
		if c.breaker != nil {
			all[flow.Oldest(c.Consumer)] = c.breaker
		}
	}
	return all
}

// openCircuits lists the consumers whose circuits are open.
func (ct *catalog) openCircuits() (list []bus.OpenCircuit) {
	for _, c := range ct.consumers {
		if c.circuit == nil {
			continue
		}
		if since, reason, open := c.circuit.Tripped(); open {
			list = append(list, bus.OpenCircuit{Consumer: c.Name(), Since: since, Reason: errorlog.Text(reason)})
		}
	}
	return list
}

// endRateWaits ends open periods, since the run is over.
func (ct *catalog) endRateWaits(now time.Time) {
	for _, c := range ct.consumers {
		if c.rateWaits != nil {
			c.rateWaits.begin(now, now)
		}
	}
}
