package notify

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Listener is a PostgreSQL connection that receives notifications, one after the other. The module
// notify/pgxnotify has one for pgx.
type Listener interface {
	// Listen connects, listens on the channel and calls listening once. Then it calls received
	// with the text of every notification, until ctx ends or the connection is lost. It releases
	// its connection before it returns, and never returns nil. The notifier calls it again after a
	// while, never concurrently. A call that has not returned a second after ctx ended is abandoned,
	// and the notifier listens again once it has returned. A panic counts as an error.
	Listen(ctx context.Context, channel string, listening func(), received func(text string)) error
}

// NotifierConfig configures a [Notifier]. The zero value makes one that only sends, which is
// enough for a process without processors.
type NotifierConfig struct {
	// Listener receives the notifications of other processes. Defaults to none.
	Listener Listener
	// Logger logs when notifications fail and when they work again. Defaults to slog.Default().
	Logger *slog.Logger
}

// Notifier connects the wake-ups of processes that share tables: what wakes this process's
// processors also wakes those of the others. Every process needs one. Its methods are safe for
// concurrent use.
type Notifier struct {
	id       string // distinguishes our own notifications
	channel  string
	registry *bus.Registry
	listener Listener
	// send is store.Notify; tests replace it.
	send    func(ctx context.Context, text string) error
	out     outbound
	sending condition
	hearing condition
	running atomic.Bool
	// abandoned counts calls of the listener that did not return after their context ended.
	abandoned atomic.Int32
}

// NewNotifier makes a notifier for the processes that share the registry's tables, by schema and
// prefix. It sends notifications through db, which may use a connection pooler. The database must
// be PostgreSQL; otherwise the error is errors.ErrUnsupported. NewNotifier does not touch the
// database.
func NewNotifier(db *bun.DB, registry *bus.Registry, config NotifierConfig) (*Notifier, error) {
	if db == nil || registry == nil {
		return nil, errors.New("notify: NewNotifier: the database handle or the registry is nil")
	}
	s, err := store.For(db.Dialect().Name(), registry.Tables())
	if err != nil {
		return nil, fmt.Errorf("notify: NewNotifier: %w", err)
	}
	channel, ok := s.Channel()
	if !ok {
		return nil, fmt.Errorf(
			"notify: NewNotifier: dialect %q has no notifications, PostgreSQL is needed: %w", db.Dialect().Name(), errors.ErrUnsupported,
		)
	}
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return newNotifier(channel, registry, config, func(ctx context.Context, text string) error {
		return s.Notify(ctx, db, channel, text)
	}), nil
}

func newNotifier(channel string, registry *bus.Registry, config NotifierConfig, send func(context.Context, string) error) *Notifier {
	n := &Notifier{
		id: rand.Text(), channel: channel, registry: registry, listener: config.Listener, send: send,
		out: outbound{changed: make(chan struct{}, 1), about: map[string]bool{}},
		sending: condition{logger: config.Logger,
			bad: "other processes are not notified and have to poll", good: "other processes are notified again"},
		hearing: condition{logger: config.Logger,
			bad:  "notifications from other processes are not received, polling continues",
			good: "notifications from other processes are received again"},
	}
	access.Wakeups(registry).Listen(n.out.note) // from now on: commits before Run are announced too
	return n
}

// Run sends and listens until ctx is cancelled, then sends what is left, within 2 s, and returns
// nil. It logs failures and retries. A second concurrent Run returns bus.ErrRunning.
func (n *Notifier) Run(ctx context.Context) error {
	if !n.running.CompareAndSwap(false, true) {
		return fmt.Errorf("notify: run: %w", bus.ErrRunning)
	}
	defer n.running.Store(false)
	var loops sync.WaitGroup
	loops.Go(func() { n.sendLoop(ctx) })
	if n.listener != nil {
		loops.Go(func() { n.listenLoop(ctx) })
	}
	loops.Wait()
	return nil
}

// Health returns the notifier's health. The notifier is ready while it runs and, with a Listener,
// receives notifications of other processes. Err joins the current errors of receiving and sending.
// Messages are processed in any case.
func (n *Notifier) Health() bus.Health {
	heard, err := n.hearing.get()
	_, sendErr := n.sending.get()
	return bus.Health{Ready: (heard || n.listener == nil) && n.running.Load(), Err: errors.Join(err, sendErr)}
}
