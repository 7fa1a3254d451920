package adapter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// ErrClosed ends the pings of a [Reconnect]: the connection is closed for good. It is immutable.
var ErrClosed = errors.New("closed")

const (
	pingEvery   = 250 * time.Millisecond
	pingTimeout = 5 * time.Second
	// slow is the duration of a ping from which its broker counts as unavailable at the start of the ping.
	slow = time.Second
)

// Reconnect implements broker.ReconnectNotifier: it reports that a broker answers again. It pings the
// broker only after an operation has failed with broker.ErrUnavailable, until the broker answers. If
// the broker answers the first ping at once, it was available, and nothing is reported: the probes of
// a relay find the cause of the failure. It is safe for concurrent use.
type Reconnect struct {
	ping   func(ctx context.Context) error
	ctx    context.Context
	cancel context.CancelFunc
	looks  sync.WaitGroup

	mu      sync.Mutex
	tell    []func()
	looking bool
	reason  error // of the last ping, while it pings
}

// NewReconnect makes one. ping may wait until the broker answers.
func NewReconnect(ping func(ctx context.Context) error) *Reconnect {
	r := &Reconnect{ping: ping}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// OnReconnect has f called each time the broker answers again.
func (r *Reconnect) OnReconnect(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell = append(r.tell, f)
}

// Note takes the results of an operation. If the broker was unavailable, and OnReconnect was called,
// the pings begin.
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

// Reason returns the error of the last ping, or nil if the broker answered or was not pinged.
func (r *Reconnect) Reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason
}

// look pings until the broker answers, and reports whether it was unavailable.
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

// Close ends the pings and waits for the current one.
func (r *Reconnect) Close() {
	r.mu.Lock()
	r.cancel() // later failures start no pings
	r.mu.Unlock()
	r.looks.Wait()
}
