package txn

import (
	"context"
	"slices"
	"sync"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

type wakeupsKey struct{}

// Wakeups collects what is written in a transaction until it commits, for code that begins
// transactions for users. It is safe for concurrent use.
type Wakeups struct {
	mu                sync.Mutex
	payloadTypes      []string
	groups            []string
	schedules, events bool
	handOff           *HandOff // nil if no processor takes messages
	closed            bool     // by CloseEnded
}

// WithWakeups returns the context for such a transaction: see [Within]. Announcements with it wait
// for [Wakeups.Send].
func WithWakeups(ctx context.Context) (context.Context, *Wakeups) {
	w := new(Wakeups)
	return context.WithValue(Within(ctx), wakeupsKey{}, w), w
}

// AnnounceMessages is [Announce] for messages of these types, if there are any.
func AnnounceMessages(ctx context.Context, db bun.IDB, registry *bus.Registry, payloadTypes []string) {
	if len(payloadTypes) > 0 {
		Announce(ctx, db, registry, wakeup.Wake{PayloadTypes: payloadTypes})
	}
}

// Announce wakes this process's processors for what was written through db. Without a transaction
// that happens at once. With one it happens at its commit, if that will be known, or else a few
// times soon.
func Announce(ctx context.Context, db bun.IDB, registry *bus.Registry, wake wakeup.Wake) {
	_, inTx := db.(bun.Tx)
	if pending, ok := ctx.Value(wakeupsKey{}).(*Wakeups); ok && inTx {
		pending.add(wake)
		return
	}
	wake.Expected = inTx
	access.Wakeups(registry).Send(wake)
}

func (w *Wakeups) add(wake wakeup.Wake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.schedules = w.schedules || wake.Schedules
	w.events = w.events || wake.Events
	w.groups = append(w.groups, wake.Groups...)
	for _, payloadType := range wake.PayloadTypes {
		if !slices.Contains(w.payloadTypes, payloadType) {
			w.payloadTypes = append(w.payloadTypes, payloadType)
		}
	}
}

// Closed reports whether [CloseEnded] closed the transaction.
func (w *Wakeups) Closed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// Send announces everything after the commit.
func (w *Wakeups) Send(registry *bus.Registry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.payloadTypes) > 0 {
		access.Wakeups(registry).Send(wakeup.Wake{PayloadTypes: w.payloadTypes})
	}
	if w.schedules {
		access.Wakeups(registry).Send(wakeup.Wake{Schedules: true})
	}
	if len(w.groups) > 0 {
		access.Wakeups(registry).Send(wakeup.Wake{Groups: w.groups})
	}
	if w.events {
		access.Wakeups(registry).Send(wakeup.Wake{Events: true})
	}
}
