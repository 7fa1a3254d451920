package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// Stats is a receiver's state, with counts since its runner was made.
type Stats struct {
	Receiver   string
	Accepted   int64 // became messages
	Duplicates int64 // delivered again
	Ignored    int64 // of types that are not accepted
	Parked     int64 // could not be accepted
	// Lag is the age of the last record at its arrival, by the record's time and this process's
	// clock. It is 0 if none has arrived for a minute.
	Lag time.Duration
	// Paused is why nothing is fetched, or empty. The backlog may be full; the database or the
	// broker may not answer; the subscription may have ended; [MapRecord]'s function or the
	// subscriber may not return; or another instance accepts a type that this one lacks. Broker
	// outages are known only from a [broker.OutageNotifier].
	Paused string
	// Standby is true while another process receives and this one waits: see [AppendToLog].
	Standby bool
	// InboxSize is the number of records in the inbox, up to 10,000. Oldest is the age of the
	// oldest, at most about the deduplication window.
	InboxSize int
	Oldest    time.Duration
}

const (
	mostRemembered = 10_000
	lagShown       = time.Minute
)

// Stats returns the receivers' states, in the order in which they were given. It queries the
// database for each.
func (r *Runner) Stats(ctx context.Context) ([]Stats, error) {
	all := make([]Stats, 0, len(r.receivers))
	for _, rc := range r.receivers {
		inbox, err := r.store.Inbox(ctx, r.db, rc.name, mostRemembered)
		if err != nil {
			return nil, dberr.Wrap(err, "relay: stats")
		}
		s := rc.runs.stats()
		s.Receiver, s.InboxSize = rc.name, inbox.Hashes
		if !inbox.Oldest.IsZero() {
			s.Oldest = inbox.Now.Sub(inbox.Oldest.Time)
		}
		all = append(all, s)
	}
	return all, nil
}

// running is the state of a running receiver. It is safe for concurrent use.
type running struct {
	by atomic.Pointer[Runner]

	mu      sync.Mutex
	sum     Stats
	arrival time.Time // of the last record

	waiting  int // messages at the last count
	since    int // messages written since
	asked    time.Time
	failures int     // failed batches in a row
	away     absence // of the broker
	newer    absence // of this instance, while newer ones receive

	hanging  atomic.Int32    // abandoned Map calls that still run
	returned <-chan struct{} // closed once an abandoned subscriber has returned; nil if there is none
}

func (s *running) stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.sum
	if time.Since(s.arrival) > lagShown {
		sum.Lag = 0
	}
	if n := s.hanging.Load(); sum.Paused == "" && n > 0 && s.failures > 0 {
		sum.Paused = fmt.Sprintf("Map has not returned: calls that were given up and go on: %d", n)
	}
	if sum.Paused == "" {
		sum.Paused = s.away.text()
	}
	return sum
}

// arrived records a record's arrival and age.
func (s *running) arrived(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrival, s.sum.Lag = time.Now(), 0
	if !sent.IsZero() {
		s.sum.Lag = max(s.arrival.Sub(sent), 0)
	}
}

// standBy records whether another process receives.
func (s *running) standBy(other bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum.Standby = other; other {
		s.sum.Paused, s.away = "", absence{} // it does not subscribe
	}
}

// counted adds a transaction's counts.
func (s *running) counted(fresh, parked, duplicates int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Accepted, s.sum.Parked, s.sum.Duplicates = s.sum.Accepted+int64(fresh), s.sum.Parked+int64(parked), s.sum.Duplicates+int64(duplicates)
	s.since += fresh
}

// took records an accepted batch.
func (s *running) took(unknown int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Ignored += int64(unknown)
	s.failures = 0
}

// failed records a batch that is returned to the broker.
func (s *running) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures++
	s.sum.Paused = errorlog.Text(err)
}

// pause records why nothing is fetched; an empty text means that records are fetched.
func (s *running) pause(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Paused = fmt.Sprintf(format, args...)
}
