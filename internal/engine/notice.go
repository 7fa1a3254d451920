package engine

import (
	"log/slog"
	"sync"
	"time"
)

// notice is a warning that one cause can give rise to many times, such as claims
// that all run out within moments of each other. It is logged at most once a
// second, with the totals since then. It is safe for concurrent use.
type notice struct {
	logger *slog.Logger
	text   string

	mu               sync.Mutex
	claims, messages int // not logged yet
	logged           time.Time
}

// add logs the notice, or keeps it for flush.
func (n *notice) add(claims, messages int) {
	n.mu.Lock()
	n.claims += claims
	n.messages += messages
	n.mu.Unlock()
	n.flush(time.Second)
}

// flush logs what was kept, unless the last line is younger than the pause.
func (n *notice) flush(pause time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.claims == 0 || now.Sub(n.logged) < pause {
		return
	}
	numbers := []any{"claims", n.claims}
	if n.messages > 0 {
		numbers = append(numbers, "messages", n.messages)
	}
	n.logger.Warn(n.text, numbers...)
	n.claims, n.messages, n.logged = 0, 0, now
}
