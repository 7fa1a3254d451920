package adapter

import (
	"slices"
	"sync"
)

// Outage implements broker.OutageNotifier: it reports whether the broker of a subscriber answers.
// The zero value is ready for use. It is safe for concurrent use.
type Outage struct {
	mu   sync.Mutex
	tell []func(err error)
}

// OnOutage has each later [Outage.Note] call f.
func (o *Outage) OnOutage(f func(err error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tell = append(o.tell, f)
}

// Note reports an error of a broker that does not answer, or nil after an answer. It may be called
// again with the same state.
func (o *Outage) Note(err error) {
	o.mu.Lock()
	tell := slices.Clip(o.tell)
	o.mu.Unlock()
	for _, f := range tell {
		f(err)
	}
}
