package adapter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// ErrClosed is what a ping of [Reconnect] says when there is nothing to wait for any more.
// It is immutable.
var ErrClosed = errors.New("closed")

const (
	pingEvery   = 250 * time.Millisecond
	pingTimeout = 5 * time.Second
	// slow is how long an answer takes of a broker that was away when it was asked.
	slow = time.Second
)

// Reconnect tells who wants to know when a broker is back, for broker.ReconnectNotifier. It looks only while
// a caller has missed the broker: then it asks again and again. A broker that answers the first
// question at once was not away, and its answer is no news: a relay finds out by its probes what ails
// it. It is safe for concurrent use.
type Reconnect struct {
	ping   func(ctx context.Context) error
	ctx    context.Context
	cancel context.CancelFunc
	looks  sync.WaitGroup

	mu      sync.Mutex
	tell    []func()
	looking bool
	reason  error // of the last question, while it looks
}

// NewReconnect makes one. ping asks the broker, and may wait until it answers.
func NewReconnect(ping func(ctx context.Context) error) *Reconnect {
	r := &Reconnect{ping: ping}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// OnReconnect has f called each time that the broker is back.
func (r *Reconnect) OnReconnect(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell = append(r.tell, f)
}

// Note is told what became of records. If the broker was missed, and OnReconnect has a function, it is asked
// from now on.
func (r *Reconnect) Note(errs ...error) {
	if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, broker.ErrUnavailable) }) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looking || len(r.tell) == 0 || r.ctx.Err() != nil {
		return
	}
	r.looking = true
	r.looks.Go(func() {
		back := r.look()
		r.mu.Lock()
		r.looking = false
		tell := slices.Clone(r.tell)
		r.mu.Unlock()
		if back {
			for _, f := range tell {
				f()
			}
		}
	})
}

// Reason is why the broker has not answered the last question, nil if it has, or was not asked.
func (r *Reconnect) Reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason
}

// look asks until the broker answers, and reports whether it was away.
func (r *Reconnect) look() (back bool) {
	for away := false; ; away = true {
		asked := time.Now()
		ctx, cancel := context.WithTimeout(r.ctx, pingTimeout)
		err := r.ping(ctx)
		cancel()
		r.mu.Lock()
		r.reason = err
		r.mu.Unlock()
		switch {
		case err == nil:
			return away || time.Since(asked) >= slow
		case errors.Is(err, ErrClosed), r.ctx.Err() != nil:
			return false
		}
		Pause(r.ctx, pingEvery)
	}
}

// Close ends all that, and waits for it.
func (r *Reconnect) Close() {
	r.mu.Lock()
	r.cancel() // a broker that is missed from now on starts nothing
	r.mu.Unlock()
	r.looks.Wait()
}
