package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// inFlightClaims records when the claims in flight began. The database may have committed them
// before this process has the answer.
type inFlightClaims struct {
	mu       sync.Mutex
	since    []time.Time // the oldest first
	doubtful time.Time   // a claim whose commit was not confirmed may appear until then

	unknown atomic.Bool // the database may hold claims for us that are not in the ledger
}

// begin notes a claim, which is over when end is called.
func (f *inFlightClaims) begin() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	began := time.Now()
	f.since = append(f.since, began)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		i := slices.Index(f.since, began)
		f.since = slices.Delete(f.since, i, i+1)
	}
}

// startedBefore reports whether a claim in flight began before t.
func (f *inFlightClaims) startedBefore(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.since) > 0 && f.since[0].Before(t)
}

// doubt notes a claim whose commit was not confirmed, and whose lease ends at until.
func (f *inFlightClaims) doubt(until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubtful = later(f.doubtful, until)
}

// mayBeUnknown reports whether the database may hold claims for this process that are not in the
// ledger, and assumes from then on that it does not.
func (f *inFlightClaims) mayBeUnknown(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unknown.Swap(false) || now.Before(f.doubtful)
}
