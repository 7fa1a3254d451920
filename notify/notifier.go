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
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Listener is a connection to PostgreSQL that hears notifications, one after the
// other. The module notify/pgxnotify has one for pgx.
type Listener interface {
	// Listen connects, listens on the channel, calls listening once, and then
	// received with the text of every notification, until ctx ends or the
	// connection is lost. It leaves nothing behind, and never returns nil. It is
	// called again after a while, and never twice at once.
	Listen(ctx context.Context, channel string, listening func(), received func(text string)) error
}

// NotifierConfig sets up a [Notifier]. The zero value makes one that only sends, which is
// all that a process without processors needs.
type NotifierConfig struct {
	// Listener hears the notifications of other processes. Defaults to none.
	Listener Listener
	// Logger gets a line when notifications do not get through, and when they do again. Defaults to
	// slog.Default().
	Logger *slog.Logger
}

// Notifier joins the wake-ups of processes that share tables: what wakes the
// processors of this process wakes those of the others, too. Every process needs
// one. Its methods are safe for concurrent use.
type Notifier struct {
	id       string // distinguishes our notifications from those of others
	channel  string
	registry *bus.Registry
	listener Listener
	// send is store.Notify; tests replace it.
	send    func(ctx context.Context, text string) error
	out     outbound
	sending condition
	hearing condition
	running atomic.Bool
}

// NewNotifier makes a notifier for the processes that share the registry's tables,
// by schema and prefix. Notifications are sent through db, which may be reached
// through a connection pooler, and must be PostgreSQL: for any other the error is an
// errors.ErrUnsupported. It does not touch the database.
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
		return nil, fmt.Errorf("notify: NewNotifier: dialect %q has no notifications, PostgreSQL has: %w", db.Dialect().Name(), errors.ErrUnsupported)
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
			bad: "notifications of other processes are not heard, polling goes on", good: "notifications of other processes are heard again"},
	}
	registry.Wakeups().Listen(n.out.note) // from now on: what is committed before Run has begun is told as well
	return n
}

// ErrRunning is returned by [Notifier.Run] while another Run of the same Notifier has not
// returned.
var ErrRunning = errors.New("notify: the notifier is running already")

// Run sends and listens until ctx is cancelled, then sends what is left to send,
// within 2 s, and returns nil. Whatever fails meanwhile is logged and tried again.
// A second Run at the same time returns [ErrRunning].
func (n *Notifier) Run(ctx context.Context) error {
	if !n.running.CompareAndSwap(false, true) {
		return ErrRunning
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

// Health returns how the notifier is doing. It is ready while it runs and, with a Listener,
// notifications of other processes are heard; its error is why they are not, or why others
// could not be notified. Whatever it says, messages are processed.
func (n *Notifier) Health() bus.Health {
	heard, err := n.hearing.get()
	_, sendErr := n.sending.get()
	return bus.Health{Ready: (heard || n.listener == nil) && n.running.Load(), Err: errors.Join(err, sendErr)}
}
