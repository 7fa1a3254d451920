package relay

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	leastMissing = time.Second
	mostMissing  = 5 * time.Minute
	// forgotten is how long nothing is heard of a destination, beyond the wait for it, until what was known of it is
	// old: others may have published to it meanwhile.
	forgotten = 10 * time.Second
	// maxMissing bounds how many destinations are kept in mind.
	maxMissing = 1000
	// warnEvery is how often the log warns of a destination that is missing, and warnApart how
	// long after it warned of another one.
	warnEvery = 5 * time.Minute
	warnApart = time.Second
)

// missing knows since when destinations have been missing. It is safe for concurrent use.
type missing struct {
	mu     sync.Mutex
	gone   map[string]*absentee
	warned time.Time // of any of them
}

// absentee is a destination that is missing.
type absentee struct{ since, seen, warned time.Time }

// wait is how long messages wait for it.
func (a *absentee) wait(now time.Time) time.Duration {
	return min(max(now.Sub(a.since), leastMissing), mostMissing)
}

// warning is an error whose line in the log is to be seen.
type warning struct{ error }

// Level implements slog.Leveler.
func (warning) Level() slog.Level { return slog.LevelWarn }

// Unwrap returns the error itself.
func (w warning) Unwrap() error { return w.error }

// note takes down what the broker said of the records' destinations.
func (m *missing) note(records []Record, results []error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone == nil {
		m.gone = make(map[string]*absentee)
	}
	now := time.Now()
	for i, record := range records {
		absent, known := m.gone[record.Destination]
		switch gone := len(results) > 0 && errors.Is(results[i], ErrNoDestination); {
		case known && (len(results) == 0 || results[i] == nil):
			delete(m.gone, record.Destination)
		case gone && !known:
			if len(m.gone) == maxMissing {
				clear(m.gone)
			}
			m.gone[record.Destination] = &absentee{since: now, seen: now}
		case gone:
			if now.Sub(absent.seen) > absent.wait(absent.seen)+forgotten {
				absent.since = now
			}
			absent.seen = now
		}
	}
}

// wait is how long a message waits for its destination: as long as that has been missing.
func (m *missing) wait(destination string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone, known := m.gone[destination]
	if !known {
		return leastMissing
	}
	return gone.wait(time.Now())
}

// told returns the error, or now and then one of which the log warns: messages that are snoozed for
// ever have no other line that anybody looks at.
func (m *missing) told(destination string, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	gone, known := m.gone[destination]
	if !known || now.Sub(gone.warned) < warnEvery || now.Sub(m.warned) < warnApart {
		return err
	}
	gone.warned, m.warned = now, now
	return warning{err}
}
