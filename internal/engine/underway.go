package engine

import (
	"slices"
	"sync"
	"time"
)

// underway records when the claims in flight began. The database may have them before this process
// knows.
type underway struct {
	mu    sync.Mutex
	since []time.Time // the oldest first
}

// begin notes a claim, which is over when end is called.
func (u *underway) begin() (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	began := time.Now()
	u.since = append(u.since, began)
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		i := slices.Index(u.since, began)
		u.since = slices.Delete(u.since, i, i+1)
	}
}

// before reports whether a claim in flight began before t.
func (u *underway) before(t time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.since) > 0 && u.since[0].Before(t)
}
