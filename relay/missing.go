package relay

import (
	"errors"
	"sync"
	"time"
)

const (
	leastMissing = time.Second
	mostMissing  = 5 * time.Minute
	// maxMissing bounds how many destinations are kept in mind.
	maxMissing = 1000
)

// missing knows since when destinations have been missing. It is safe for concurrent use.
type missing struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// note takes down what the broker said of the records' destinations.
func (m *missing) note(records []Record, results []error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since == nil {
		m.since = make(map[string]time.Time)
	}
	for i, record := range records {
		_, known := m.since[record.Destination]
		switch gone := len(results) > 0 && errors.Is(results[i], ErrNoDestination); {
		case known && (len(results) == 0 || results[i] == nil):
			delete(m.since, record.Destination)
		case gone && !known:
			if len(m.since) == maxMissing {
				clear(m.since)
			}
			m.since[record.Destination] = time.Now()
		}
	}
}

// wait is how long a message waits for its destination: as long as that has been missing.
func (m *missing) wait(destination string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, known := m.since[destination]
	if !known {
		return leastMissing
	}
	return min(max(time.Since(since), leastMissing), mostMissing)
}
