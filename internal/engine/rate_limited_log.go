package engine

import (
	"log/slog"
	"sync"
	"time"
)

// rateLimitedLog is a warning that one cause can give rise to many times, such as claims
// that all run out within moments of each other. It is logged at most once a
// second, with the totals since then. It is safe for concurrent use.
type rateLimitedLog struct {
	logger *slog.Logger
	text   string

	mu               sync.Mutex
	claims, messages int // not logged yet
	logged           time.Time
}

// add logs the warning, or keeps it for flush.
func (l *rateLimitedLog) add(claims, messages int) {
	l.mu.Lock()
	l.claims += claims
	l.messages += messages
	l.mu.Unlock()
	l.flush(time.Second)
}

// flush logs what was kept, unless the last line is younger than the pause.
func (l *rateLimitedLog) flush(pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.claims == 0 || now.Sub(l.logged) < pause {
		return
	}
	numbers := []any{"claims", l.claims}
	if l.messages > 0 {
		numbers = append(numbers, "messages", l.messages)
	}
	l.logger.Warn(l.text, numbers...)
	l.claims, l.messages, l.logged = 0, 0, now
}

// warnings are the warnings about leases.
type warnings struct {
	unrenewed rateLimitedLog
	takenAway rateLimitedLog
	recovered rateLimitedLog
}

// flush logs kept warnings if the last one is older than pause.
func (ws *warnings) flush(pause time.Duration) {
	ws.unrenewed.flush(pause)
	ws.takenAway.flush(pause)
	ws.recovered.flush(pause)
}
