package engine

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// Processes that are notified at once look one after the other. Most then find a message taken
	// and do not try to claim it.
	remoteSpread = time.Millisecond
	// The wait between looks after wake-ups: the more they bring, the shorter.
	remoteMin = time.Millisecond
	remoteMax = 50 * time.Millisecond
	// A wake-up during a look waits at most this many times as long as the look took. Longer waits
	// are for a slow database.
	remoteRest = 4
)

// wakePacer paces the looks for messages of other processes. Where many processes share little
// work, or are busy, most looks find nothing and so become rare. A process that finds something
// looks again soon. It is safe for concurrent use.
type wakePacer struct {
	mu      sync.Mutex
	woken   bool // by another process, since the last look began
	looking bool // a look after a wake-up is under way
	looked  time.Time
	pace    time.Duration
	news    bool  // a look found work for idle consumers; nothing was claimed since
	claimed int64 // messages, up to the last look
}

// next returns when to look, now that another process woke this one. It returns false if a look is
// under way, which then learns when the next one is due.
func (m *wakePacer) next(now time.Time) (at time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.woken = true
	spread := remoteSpread
	if m.pace == remoteMin { // the last look brought something: this process goes first
		spread /= 4
	}
	return later(now.Add(rand.N(spread)), m.looked.Add(m.pace)), !m.looking
}

// take reports whether another process woke this one since the last look. If so, a look begins.
func (m *wakePacer) take() (woken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	woken, m.woken = m.woken, false
	m.looking = woken
	return woken
}

// after notes the result of such a look. asked reports whether it asked the database, which it does
// for idle consumers only, and news whether it found work for them. claimed is how many messages
// were claimed by then. It returns when the next look is due, if there was a wake-up meanwhile.
func (m *wakePacer) after(now time.Time, took time.Duration, asked, news bool, claimed int64) (at time.Time, woken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looking = false
	if asked { // otherwise it cost nothing and shows nothing
		m.pace = min(max(m.pace+m.pace/2, remoteMin), remoteMax)
		if m.news && claimed > m.claimed {
			m.news, m.pace = false, remoteMin
		}
		m.looked, m.news, m.claimed = now, m.news || news, claimed
	}
	return m.looked.Add(min(m.pace, remoteRest*took)), m.woken
}
