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

// Stats is what a receiver has done, since its runner was made, and is doing.
type Stats struct {
	Receiver   string
	Accepted   int64 // records that became messages
	Duplicates int64 // that were delivered again
	Ignored    int64 // of types that are not accepted
	Parked     int64 // that could not be taken
	// Lag is how old the last record was when it arrived, by its own time and this process's
	// clock. It is 0 when none has arrived for a minute.
	Lag time.Duration
	// Paused says why nothing is fetched: too much waits, the database or the broker does not answer, the
	// subscription has ended, the function of [MapRecord] or the subscriber does not return, another instance accepts a
	// type that this one lacks. It is empty while something is. Of the broker it knows by a [broker.OutageNotifier].
	Paused string
	// Standby is true while another process receives, and this one waits for its turn: see [AppendToLog].
	Standby bool
	// InboxSize is how many records the inbox has, counted up to 10,000, and Oldest how long
	// ago the oldest arrived, which is about the retention at most.
	InboxSize int
	Oldest    time.Duration
}

const (
	mostRemembered = 10_000
	lagShown       = time.Minute
)

// Stats returns how the receivers are doing, in the order in which they were given. It asks the
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

// running is what is known of a receiver while it runs. It is safe for concurrent use.
type running struct {
	by atomic.Pointer[Runner]

	mu      sync.Mutex
	sum     Stats
	arrival time.Time // of the last record

	waiting  int // messages, when they were counted last
	since    int // messages that were written since
	asked    time.Time
	failures int     // batches in a row that could not be taken
	away     absence // of the broker
	newer    absence // of this instance, while newer ones receive

	hanging  atomic.Int32    // calls of Map that were given up, and have not returned
	returned <-chan struct{} // closed once a subscriber that was given up has returned; nil if there is none
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

// arrived notes a record, and when it was made.
func (s *running) arrived(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrival, s.sum.Lag = time.Now(), 0
	if !sent.IsZero() {
		s.sum.Lag = max(s.arrival.Sub(sent), 0)
	}
}

// standBy notes whether another process receives.
func (s *running) standBy(other bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum.Standby = other; other {
		s.sum.Paused, s.away = "", absence{} // it does not subscribe
	}
}

// counted notes what a transaction has come to.
func (s *running) counted(fresh, parked, duplicates int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Accepted, s.sum.Parked, s.sum.Duplicates = s.sum.Accepted+int64(fresh), s.sum.Parked+int64(parked), s.sum.Duplicates+int64(duplicates)
	s.since += fresh
}

// took notes a batch that is taken over.
func (s *running) took(unknown int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Ignored += int64(unknown)
	s.failures = 0
}

// failed notes a batch that goes back.
func (s *running) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures++
	s.sum.Paused = errorlog.Text(err)
}

// pause notes why nothing is fetched; nothing says that something is.
func (s *running) pause(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Paused = fmt.Sprintf(format, args...)
}
