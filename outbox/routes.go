package outbox

import (
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// routesEvery is how often a producer says for whom it writes a payload type: often enough
// to be noticed, and never in a program that has just begun.
const routesEvery = time.Minute

// routes says at times in a message for which consumers it was written, so that a processor
// can tell when one of its own is missing.
type routes struct {
	began time.Time
	mu    sync.Mutex
	said  map[string]time.Time // by payload type
}

// list returns the consumers' names when it is time to say them.
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
