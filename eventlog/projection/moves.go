package projection

import (
	"context"
	"sync"
	"time"
)

// moves wakes callers that wait for a shard to move. It is safe for concurrent use.
type moves struct {
	mu   sync.Mutex
	next chan struct{} // closed and replaced when a shard moves
}

func newMoves() *moves { return &moves{next: make(chan struct{})} }

// announce wakes all callers that wait.
func (m *moves) announce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.next)
	m.next = make(chan struct{})
}

// coming returns a channel that is closed at the next move.
func (m *moves) coming() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

// await waits until a shard has moved, at most for wait.
func await(ctx context.Context, moved <-chan struct{}, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-moved:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
