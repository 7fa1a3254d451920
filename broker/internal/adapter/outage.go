package adapter

import (
	"slices"
	"sync"
)

// Outage tells who wants to know whether the broker of a subscriber answers, for broker.OutageNotifier. Its zero
// value is ready. It is safe for concurrent use.
type Outage struct {
	mu   sync.Mutex
	tell []func(err error)
}

// OnOutage has f called with what [Outage.Note] is told.
func (o *Outage) OnOutage(f func(err error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tell = append(o.tell, f)
}

// Note is told why the broker does not answer, and with nil that it does: as often as that is found out.
func (o *Outage) Note(err error) {
	o.mu.Lock()
	tell := slices.Clip(o.tell)
	o.mu.Unlock()
	for _, f := range tell {
		f(err)
	}
}
