package relay

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

const (
	firstRetry   = time.Second
	longestRetry = 30 * time.Second
	leastMissing = time.Second
	mostMissing  = 5 * time.Minute
	// forgotten is how long after its retry a destination's state becomes outdated, if nothing
	// more is heard of it. Other processes may have published to it meanwhile.
	forgotten = 10 * time.Second
	// maxMissing limits how many destinations are tracked.
	maxMissing = 1000
	// warnEvery is how often a missing destination is logged, and warnApart the minimum time
	// between two of these lines.
	warnEvery = 5 * time.Minute
	warnApart = time.Second
)

// missing tracks destinations that are missing or do not answer. It is safe for concurrent use.
type missing struct {
	mu      sync.Mutex
	gone    map[place]*absentee
	heard   map[string]time.Time // when each destination last answered
	warned  time.Time            // last warning for any destination
	doubted time.Time            // since when no destination has answered; zero if the last one did
	shut    bool                 // the circuit was tripped because none answers
}

// place is a destination, or a key of it. A key may be unavailable alone, as a partition without a
// leader.
type place struct{ destination, key string }

// absentee is a place that is missing or does not answer.
type absentee struct {
	since, seen, warned time.Time
	found               time.Time // since, even if what was known became outdated

	silent bool      // does not answer
	next   time.Time // when a silent place is tried again: its messages are held until then
	trying bool      // a record to it is being published
}

// wait is how long messages wait for the place.
func (a *absentee) wait(now time.Time) time.Duration {
	most := mostMissing
	if a.silent {
		most = longestRetry
	}
	return min(max(now.Sub(a.since), leastMissing), most)
}

// warning is an error that is logged at Warn.
type warning struct{ error }

// Level implements slog.Leveler.
func (warning) Level() slog.Level { return slog.LevelWarn }

// Unwrap returns the error itself.
func (w warning) Unwrap() error { return w.error }

// isSilence reports whether a broker or destination did not answer.
func isSilence(err error) bool {
	return errors.Is(err, broker.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// note records the broker's results for the records' destinations. back means that a destination
// answers whose silence tripped the circuit.
func (m *missing) note(records []broker.Record, results []error) (back bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone == nil {
		m.gone, m.heard = make(map[place]*absentee), make(map[string]time.Time)
	}
	now := time.Now()
	answered := make(map[string]bool)
	for i, record := range records {
		if !isSilence(results[i]) {
			answered[record.Destination] = true
		}
	}
	if len(answered) > 0 {
		m.doubted = time.Time{}
	} else if m.doubted.IsZero() {
		m.doubted = now
	}
	if len(m.heard)+len(answered) > maxMissing {
		clear(m.heard)
	}
	for name := range answered {
		m.heard[name] = now
		if whole := (place{destination: name}); m.gone[whole] != nil && m.gone[whole].silent {
			delete(m.gone, whole)
			back = m.shut
		}
	}
	for i, record := range records {
		whole, part := place{destination: record.Destination}, place{record.Destination, record.Key}
		switch err := results[i]; {
		case errors.Is(err, broker.ErrDisconnected): // not about the destination
		case errors.Is(err, broker.ErrNoDestination):
			m.absent(whole, false, now)
		case isSilence(err) && record.Key != "":
			m.unanswered(part, now)
		case isSilence(err):
			if !answered[record.Destination] {
				m.absent(whole, true, now)
			}
		default:
			for _, at := range []place{whole, part} {
				if gone := m.gone[at]; gone != nil && (err == nil || gone.silent) {
					delete(m.gone, at)
				}
			}
		}
	}
	return back
}

// unanswered records that a key is silent. Its destination is silent as a whole once two keys are
// silent and it has not answered since.
func (m *missing) unanswered(part place, now time.Time) {
	whole, alone := place{destination: part.destination}, m.alone(part)
	if gone := m.gone[whole]; gone != nil && gone.silent && !alone {
		m.absent(whole, true, now)
		return
	}
	m.absent(part, true, now)
	if alone {
		return
	}
	for at := range m.gone {
		if at.destination == part.destination && at.key != "" && at != part && !m.alone(at) {
			m.absent(whole, true, now)
			return
		}
	}
}

// alone reports whether a key is silent although its destination has answered for another key since.
// Then the key says nothing about the destination.
func (m *missing) alone(at place) bool {
	gone := m.gone[at]
	return gone != nil && at.key != "" && !gone.found.After(m.heard[at.destination])
}

// absent records that a place is missing or silent.
func (m *missing) absent(at place, silent bool, now time.Time) {
	gone, known := m.gone[at]
	if !known {
		if len(m.gone) == maxMissing {
			clear(m.gone)
		}
		gone = &absentee{found: now, since: now, seen: now}
		m.gone[at] = gone
	}
	if now.Sub(gone.seen) > gone.wait(gone.seen)+forgotten {
		gone.since = now
	}
	gone.seen, gone.silent, gone.trying = now, silent, false
	gone.next = now.Add(gone.wait(now))
}

// of returns the state of a record's destination or key, or nil if neither is absent.
func (m *missing) of(record broker.Record) *absentee {
	whole, part := place{destination: record.Destination}, place{record.Destination, record.Key}
	if gone := m.gone[whole]; gone != nil && (!gone.silent || !m.alone(part)) {
		return gone
	}
	return m.gone[part]
}

// holds returns how long a record is held because its destination does not answer. Once the wait
// is over it lets one record through as a probe, which has timeout to be answered.
func (m *missing) holds(record broker.Record, timeout time.Duration) (wait time.Duration, held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, gone := time.Now(), m.of(record)
	switch {
	case gone == nil || !gone.silent:
		return 0, false
	case now.Before(gone.next) && gone.trying:
		return leastMissing, true
	case now.Before(gone.next):
		return gone.next.Sub(now), true
	}
	gone.trying, gone.next = true, now.Add(max(timeout, leastMissing))
	return 0, false
}

// silentAll reports whether none of these destinations answers.
func (m *missing) silentAll(destinations []string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range destinations {
		if gone := m.gone[place{destination: name}]; gone == nil || !gone.silent {
			return false
		}
	}
	m.shut = true
	return true
}

// misjudged reports whether the circuit was tripped for a silent destination although the probe's key
// was silent before: the other keys may have become silent for the same reason.
func (m *missing) misjudged(probe broker.Record) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := m.gone[place{destination: probe.Destination}]
	return m.shut && gone != nil && gone.silent && m.alone(place{probe.Destination, probe.Key})
}

// disconnected is called when the circuit opens because there is no connection. What is known of
// silent destinations is outdated once it closes.
func (m *missing) disconnected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shut = true
}

// pace is how long to wait with held records while no destination answers. The longer that lasts,
// the likelier the broker is the cause, and rows should be written rarely. But messages of other
// destinations may follow.
func (m *missing) pace(most time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doubted.IsZero() {
		return 0
	}
	return min(time.Since(m.doubted)/10, most)
}

// opened is called when the circuit closes: silent destinations may answer now. A key that was silent
// while its destination answered was not the circuit's reason.
func (m *missing) opened() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut {
		m.shut, m.doubted = false, time.Time{}
		maps.DeleteFunc(m.gone, func(at place, gone *absentee) bool { return gone.silent && !m.alone(at) })
	}
}

// wait is how long a message waits for its destination: as long as that has been missing.
func (m *missing) wait(record broker.Record) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if gone := m.of(record); gone != nil {
		return gone.wait(time.Now())
	}
	return leastMissing
}

// told returns the error, sometimes as a warning: messages that are snoozed forever have no other
// log line.
func (m *missing) told(record broker.Record, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, gone := time.Now(), m.of(record)
	if gone == nil || now.Sub(gone.warned) < warnEvery || now.Sub(m.warned) < warnApart {
		return err
	}
	gone.warned, m.warned = now, now
	return warning{err}
}
