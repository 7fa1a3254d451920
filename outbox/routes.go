package outbox

import (
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// routesEvery is how often a producer records the consumers of a payload type: often enough to be
// noticed, and never in a program that has just started.
const routesEvery = time.Minute

// routes adds the names of its consumers to a message now and then, so a processor can detect that
// one of its own consumers is missing there.
type routes struct {
	began time.Time
	mu    sync.Mutex
	said  map[string]time.Time // by payload type
}

// list returns the consumers' names if they are due to be recorded.
func (r *routes) list(payloadType string, consumers []bus.Consumer) []string {
	now := time.Now()
	if now.Sub(r.began) < routesEvery {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.said[payloadType]) < routesEvery {
		return nil
	}
	if r.said == nil {
		r.said = make(map[string]time.Time)
	}
	r.said[payloadType] = now
	return store.Each(consumers, bus.Consumer.Name)
}
