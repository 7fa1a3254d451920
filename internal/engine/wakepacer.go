package engine

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// Processes that are notified at once look one after the other, so that most
	// find a message taken already rather than try to claim it.
	remoteSpread = time.Millisecond
	// Between looks that others ask for: the shorter the more they bring.
	remoteMin = time.Millisecond
	remoteMax = 50 * time.Millisecond
	// A wake-up during a look waits for the next one so many times as long as that took, at most:
	// so long waits are for a database that is slow.
	remoteRest = 4
)

// wakePacer paces the looks for what other processes have produced. Where many
// processes share little work, or are busy anyway, most of these looks bring
// nothing, and so become rare; those who do find something look soon again. It is
// safe for concurrent use.
type wakePacer struct {
	mu      sync.Mutex
	woken   bool // by another process, since the last look began
	looking bool // such a look is under way
	looked  time.Time
	pace    time.Duration
	news    bool  // a look found work for idle consumers; nothing was claimed since
	claimed int64 // messages, up to the last look
}

// next returns when to look, now that another process woke this one. False means that a look is
// under way, which learns when the next one is due.
func (m *wakePacer) next(now time.Time) (at time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.woken = true
	spread := remoteSpread
	if m.pace == remoteMin { // the last look brought something: we go first
		spread /= 4
	}
	return later(now.Add(rand.N(spread)), m.looked.Add(m.pace)), !m.looking
}

// take reports whether another process woke us since the last look. If so, another one begins.
func (m *wakePacer) take() (woken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	woken, m.woken = m.woken, false
	m.looking = woken
	return woken
}

// after notes such a look: how long it took, whether it asked the database, which it does for idle
// consumers only, whether it found work for them, and how many messages were claimed by then. It
// returns when the next one is due, if there was a wake-up meanwhile.
func (m *wakePacer) after(now time.Time, took time.Duration, asked, news bool, claimed int64) (at time.Time, woken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looking = false
	if asked { // else it has cost nothing, and says nothing
		m.pace = min(max(m.pace+m.pace/2, remoteMin), remoteMax)
		if m.news && claimed > m.claimed {
			m.news, m.pace = false, remoteMin
		}
		m.looked, m.news, m.claimed = now, m.news || news, claimed
	}
	return m.looked.Add(min(m.pace, remoteRest*took)), m.woken
}
