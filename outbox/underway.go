package outbox

import (
	"sync"
	"time"
)

// underway knows since when claims have been under way, which the database may know
// before we do.
type underway struct {
	mu    sync.Mutex
	last  int
	since map[int]time.Time
}

// begin notes a claim; it is over when end is called.
func (u *underway) begin() (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since == nil {
		u.since = make(map[int]time.Time)
	}
	u.last++
	number := u.last
	u.since[number] = time.Now()
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.since, number)
	}
}

// before tells whether a claim is still under way that had begun before then.
func (u *underway) before(t time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, since := range u.since {
		if since.Before(t) {
			return true
		}
	}
	return false
}
