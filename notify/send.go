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
	// A pause between notifications is so many times as long as the last one took: the server lets
	// one transaction after the other commit that notifies.
	pauseFor = 4
	minPause = time.Millisecond
	maxPause = 20 * time.Millisecond
	// sendTimeout bounds one notification, the wait for a connection included.
	sendTimeout = 2 * time.Second
)

// topics are what notifications are about: who hears of one wakes up like this. A text
// is the sender's id and one or more of these; others, from other versions of the
// library, are ignored. Immutable.
var topics = map[string]wakeup.Wake{
	"messages":  {Remote: true},
	"schedules": {Remote: true, Schedules: true},
	"events":    {Remote: true, Events: true},
}

// aboutNothing is what a notifier sends to itself.
const aboutNothing = "check"

// outbound is what others are to be told.
type outbound struct {
	changed chan struct{} // of size 1: a signal, not a queue

	mu    sync.Mutex
	about map[string]bool // topics
}

// note takes down what wakes this process. What others sent they know, and what
// has not committed may never exist.
func (o *outbound) note(w wakeup.Wake) {
	if w.Remote || w.Expected {
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

// take returns what was noted since it was last called.
func (o *outbound) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	about := slices.Sorted(maps.Keys(o.about))
	clear(o.about)
	return about
}

// sendLoop notifies the others at once, unless they just were: then a little later, and
// once for all that comes meanwhile.
func (n *Notifier) sendLoop(ctx context.Context) {
	for stopping := false; !stopping; {
		select {
		case <-n.out.changed:
		case <-ctx.Done():
			stopping = true
		}
		began := time.Now()
		if about := n.out.take(); len(about) > 0 {
			// Not cancelled by a stop: what was committed before is announced.
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
