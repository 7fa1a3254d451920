package inbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
)

const (
	// recount is how long a count of the backlog is used, at most, while records arrive.
	recount = 10 * time.Second
	// firstCount is the wait before the backlog is counted again, and lastCount the longest one. A
	// count reads the whole backlog.
	firstCount = time.Second
	lastCount  = 30 * time.Second
	maxRetry   = 2 * time.Second
)

// backlog limits the pending messages of the accepted payloads. It is safe for concurrent use.
type backlog struct {
	*services
	receiver *receiver
	state    *state

	mu      sync.Mutex
	pending int       // messages at the last count
	added   int       // messages written since
	counted time.Time // the last count
}

// check returns an error if the backlog is full. It counts only sometimes: more often the less
// room there was, at most once per fortieth of the backlog.
func (b *backlog) check(ctx context.Context) error {
	most := b.receiver.maxBacklog
	if !b.outdated(most, time.Now()) {
		return nil
	}
	pending, err := b.count(ctx, most)
	if err != nil {
		b.outage.Failed("count waiting messages", err)
		b.state.failed(err)
		return fmt.Errorf("inbox: receiver %q: %w", b.receiver.name, err)
	}
	if pending > most {
		return fmt.Errorf("inbox: receiver %q: more than %d messages wait", b.receiver.name, most)
	}
	return nil
}

// add records that messages were written.
func (b *backlog) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.added += n
}

// outdated reports whether the last count is outdated.
func (b *backlog) outdated(most int, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return now.Sub(b.counted) >= recount || b.added > max((most-b.pending)/4, most/40)
}

// count counts pending messages, up to most+1.
func (b *backlog) count(ctx context.Context, most int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	pending, err := b.store.Inbox.Waiting(ctx, b.db, b.receiver.consumers(b.registry), most+1)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pending, b.added, b.counted = pending, 0, time.Now()
	}
	return pending, err
}

// await waits until the database answers and the backlog has room: a tenth of it, once it was
// full. The waits double, so that a slowly shrinking backlog is counted rarely. It returns false
// when ctx has ended.
func (b *backlog) await(ctx context.Context) bool {
	if failures := b.state.failuresInARow(); failures > 0 {
		// The batch may be the cause rather than the database.
		if !outage.Pause(ctx, min(maxRetry, 50*time.Millisecond<<min(failures-1, 6))) {
			return false
		}
	}
	most, pause := b.receiver.maxBacklog, firstCount
	for ctx.Err() == nil {
		pending, err := b.count(ctx, most)
		next := firstCount
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			b.outage.Failed("count waiting messages", err, firstCount)
			b.state.failed(err)
		case pending <= most:
			b.outage.Recovered()
			b.state.pause("")
			return true
		default:
			most = b.receiver.maxBacklog - b.receiver.maxBacklog/10
			next, pause = pause, min(2*pause, lastCount)
			b.state.pause(fmt.Sprintf("more than %d messages wait", b.receiver.maxBacklog))
		}
		if !outage.Pause(ctx, next) {
			return false
		}
	}
	return false
}
