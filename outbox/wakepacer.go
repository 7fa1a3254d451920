package outbox

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
	remoteMin = 3 * time.Millisecond
	remoteMax = 50 * time.Millisecond
	// Each of the others notifies us at most every 10 ms. For a while after that
	// there may be more than we were told of, and it pays to look unasked, as long
	// as we look more often than they notify.
	remoteRecent  = 20 * time.Millisecond
	remoteUnasked = 10 * time.Millisecond
)

// wakePacer paces the looks for what other processes have produced. Where many
// processes share little work, or are busy anyway, most of these looks bring
// nothing, and so become rare; those who do find something look soon again. It is
// safe for concurrent use.
type wakePacer struct {
	mu      sync.Mutex
	woken   time.Time // by another process, last
	looked  time.Time
	pace    time.Duration
	news    bool  // a look found work for idle consumers; nothing was claimed since
	claimed int64 // messages, up to the last look
}

// next returns when to look, now that another process woke us.
func (m *wakePacer) next(now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.woken = now
	return later(now.Add(rand.N(remoteSpread)), m.looked.Add(m.pace))
}

// after notes a look: whether it found work for idle consumers, and how many
// messages were claimed by then. It returns when to look again unasked, or false
// when that would not pay.
func (m *wakePacer) after(now time.Time, news bool, claimed int64) (again time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pace = min(max(m.pace+m.pace/2, remoteMin), remoteMax)
	if m.news && claimed > m.claimed {
		m.news, m.pace = false, remoteMin
	}
	m.looked, m.news, m.claimed = now, m.news || news, claimed
	return now.Add(m.pace), m.pace < remoteUnasked && now.Sub(m.woken) < remoteRecent
}
