package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// Stats is a receiver's state, with counts since its runner was made.
type Stats struct {
	Receiver   string
	Accepted   int64 // became messages
	Duplicates int64 // delivered again
	Ignored    int64 // of types that are not accepted, or obsolete: see bus.Upcaster
	Parked     int64 // could not be accepted
	// Lag is the age of the last record at its arrival, by the record's time and this process's
	// clock. It is 0 if none has arrived for a minute.
	Lag time.Duration
	// Paused is why nothing is fetched, or empty. The backlog may be full; the database or the
	// broker may not answer; the subscription may have ended; functions of the application or the
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
	maxCounted = 10_000
	lagShown   = time.Minute
)

// state is the state of a running receiver. It is safe for concurrent use.
type state struct {
	mu       sync.Mutex
	sum      Stats
	arrival  time.Time       // of the last record
	failures int             // failed batches in a row
	away     absence         // of the broker
	newer    absence         // of this instance, while newer ones receive
	returned <-chan struct{} // closed once an abandoned subscriber has returned; nil if there is none

	abandoned        atomic.Int32 // calls of application functions that still run
	abandonedRetries atomic.Int32 // the same, for parked records
	readHangs        tally        // of functions that read a record
	failing          tally        // transactions of one record that failed, although the database answers
	held             string       // why the last such record is returned to the broker
}

const (
	mostHangs    = 2 // of an application function at one record, which is parked then
	mostFailures = 5 // the same, for errors
)

// tally counts events by the hash of the record.
type tally map[string]int

const maxTally = 1000 // hashes in a tally

func (t *tally) add(record broker.Record) int {
	if *t == nil || len(*t) >= maxTally {
		*t = make(tally)
	}
	hash := arrival{record: record}.park(errHung).hash
	(*t)[hash]++
	return (*t)[hash]
}

func (t tally) of(record broker.Record) int {
	if len(t) == 0 {
		return 0
	}
	return t[arrival{record: record}.park(errHung).hash]
}

// failedOften records that a record could not be accepted by itself, and reports whether it is to
// be parked.
func (s *state) failedOften(record broker.Record, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = errorlog.Text(err)
	most := mostFailures
	if errors.Is(err, context.DeadlineExceeded) { // each takes long, or leaves a goroutine behind
		most = mostHangs
	}
	return s.failing.add(record) >= most
}

// suspects reports whether any of the records has failed by itself before.
func (s *state) suspects(arrivals []arrival) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(arrivals, func(a arrival) bool { return s.failing.of(a.record) > 0 })
}

// readHung records that a function that reads a record did not return, and reports whether the
// record is to be parked.
func (s *state) readHung(record broker.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readHangs.add(record) >= mostHangs
}

// readHungOften reports whether a record is to be parked, since a function that reads it hangs.
func (s *state) readHungOften(record broker.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readHangs.of(record) >= mostHangs
}

// absence is why and since when a receiver receives nothing.
type absence struct {
	since  time.Time // zero while it receives
	reason error
}

// text describes the outage; it is empty while the broker is available.
func (a absence) text() string {
	if a.since.IsZero() {
		return ""
	}
	return fmt.Sprintf("the broker does not answer: %s", errorlog.Text(a.reason))
}

func (s *state) stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.sum
	if time.Since(s.arrival) > lagShown {
		sum.Lag = 0
	}
	if n := s.abandoned.Load(); sum.Paused == "" && s.held == "" && n > 0 && s.failures > 0 {
		sum.Paused = fmt.Sprintf("functions of the application have not returned: %d abandoned calls still run", n)
	}
	sum.Paused = cmp.Or(sum.Paused, s.held, s.away.text())
	return sum
}

// arrived records a record's arrival and age.
func (s *state) arrived(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrival, s.sum.Lag = time.Now(), 0
	if !sent.IsZero() {
		s.sum.Lag = max(s.arrival.Sub(sent), 0)
	}
}

// standBy records whether another process receives.
func (s *state) standBy(other bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Standby = other
	if other {
		s.sum.Paused, s.away = "", absence{} // it does not subscribe
	}
}

// counted adds a transaction's counts.
func (s *state) counted(accepted, parked, duplicates int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Accepted += int64(accepted)
	s.sum.Parked += int64(parked)
	s.sum.Duplicates += int64(duplicates)
}

// succeeded records an accepted batch.
func (s *state) succeeded(ignored int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Ignored += int64(ignored)
	s.failures, s.held = 0, ""
}

// failed records a batch that is returned to the broker.
func (s *state) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures++
	s.sum.Paused = errorlog.Text(err)
}

// failuresInARow is the number of batches that failed since the last accepted one.
func (s *state) failuresInARow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures
}

// pause records why nothing is fetched; an empty text means that records are fetched.
func (s *state) pause(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Paused = text
}

// broker records whether the broker answers and returns the previous state.
func (s *state) broker(err error) (before absence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.away
	switch {
	case err == nil:
		s.away = absence{}
	case before.since.IsZero():
		s.away = absence{since: time.Now(), reason: err}
	default:
		s.away.reason = err
	}
	return before
}

// absent returns since when and why nothing is received: the broker is unavailable, or newer
// instances receive.
func (s *state) absent() absence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away.since.IsZero() {
		return s.newer
	}
	return s.away
}

// errSubscriberHangs is returned for a subscriber that does not return.
var errSubscriberHangs = errors.New("inbox: the subscriber has not returned, although its context has ended")

// hangs records an abandoned subscriber. returned is closed once it returns.
func (s *state) hangs(returned <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned, s.sum.Paused = returned, errSubscriberHangs.Error()
}

// awaitReturn waits for an abandoned subscriber, because only one goroutine may use it. It returns
// false when ctx has ended.
func (s *state) awaitReturn(ctx context.Context) bool {
	s.mu.Lock()
	returned := s.returned
	s.mu.Unlock()
	if returned == nil {
		return ctx.Err() == nil
	}
	s.pause(errSubscriberHangs.Error())
	select {
	case <-ctx.Done():
		return false
	case <-returned:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned, s.sum.Paused = nil, ""
	return true
}
