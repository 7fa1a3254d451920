package wakeup

import "sync"

// Wake tells processors that messages of these payload types may be waiting.
type Wake struct {
	// PayloadTypes that were produced. Empty means any.
	PayloadTypes []string
	// Expected is true when the transaction has not committed yet, so that the
	// messages will appear soon rather than now.
	Expected bool
	// Schedules is true when schedules were written or changed; then no
	// messages are waiting, and PayloadTypes means nothing.
	Schedules bool
	// Remote is true when another process has sent it; then PayloadTypes is
	// empty. Processors look whether there is something for them.
	Remote bool
	// Events is true when events were appended; then, too, PayloadTypes means
	// nothing, and messages that deliver them are announced apart.
	Events bool
	// Groups are groups of messages that may be done; then, too, PayloadTypes means nothing.
	Groups []string
}

// Hub carries wake-ups from the producers of a process to its processors;
// package notify joins those of several processes. They only save waiting: a lost
// one costs a poll interval, nothing else. It is safe for concurrent use.
type Hub struct {
	mu        sync.Mutex
	listeners map[*func(Wake)]struct{}
}

// Send tells every listener.
func (w *Hub) Send(wake Wake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for listener := range w.listeners {
		(*listener)(wake)
	}
}

// Listen calls fn for every wake-up until stop is called. fn must not block and
// must not call Hub methods.
func (w *Hub) Listen(fn func(Wake)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners == nil {
		w.listeners = make(map[*func(Wake)]struct{})
	}
	key := &fn
	w.listeners[key] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.listeners, key)
	}
}
