package notify

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

const (
	// A pause after a notification lasts this many times as long as sending it took: the server
	// serializes the commits of transactions that notify.
	pauseFor = 4
	minPause = time.Millisecond
	maxPause = 20 * time.Millisecond
	// sendTimeout limits one notification, including the wait for a connection.
	sendTimeout = 2 * time.Second
)

// topics are what notifications are about, with the wake-up that each causes. A notification's
// text is the sender's id and one or more topics. Topics of other versions of the library are
// ignored. Immutable.
var topics = map[string]wakeup.Wake{
	"messages":  {Remote: true},
	"schedules": {Remote: true, Schedules: true},
	"events":    {Remote: true, Events: true},
}

// aboutNothing is the topic that a notifier sends to itself.
const aboutNothing = "check"

// outbound collects what other processes must be notified of.
type outbound struct {
	changed chan struct{} // of size 1: a signal, not a queue

	mu    sync.Mutex
	about map[string]bool // topics
}

// note records what wakes this process. It ignores notifications received from others, and
// transactions that have not committed.
func (o *outbound) note(w wakeup.Wake) {
	if w.Remote || w.Expected || len(w.Groups) > 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for topic, wake := range topics {
		if wake.Schedules == w.Schedules && wake.Events == w.Events {
			o.about[topic] = true
		}
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// take returns what was recorded since the last call.
func (o *outbound) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := slices.Sorted(maps.Keys(o.about))
	clear(o.about)
	return about
}

// sendLoop notifies other processes at once, or after a pause if it just did: then once for
// everything recorded meanwhile.
func (n *Notifier) sendLoop(ctx context.Context) {
	for stopping := false; !stopping; {
		select {
		case <-n.out.changed:
		case <-ctx.Done():
			stopping = true
		}
		began := time.Now()
		if about := n.out.take(); len(about) > 0 {
			// Not cancelled by a stop: earlier commits are announced.
			if err := n.tell(context.WithoutCancel(ctx), about...); err != nil {
				n.sending.broken(err)
			} else {
				n.sending.works()
			}
		}
		outage.Pause(ctx, min(max(pauseFor*time.Since(began), minPause), maxPause))
	}
}

func (n *Notifier) tell(ctx context.Context, about ...string) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	return n.send(ctx, n.id+" "+strings.Join(about, " "))
}
