package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	logBatch    = 500
	mostBatch   = 1000
	logAttempts = 5
	logDelay    = time.Second
	// logPrefix begins the names under which log relays have their checkpoints, among those of
	// projections.
	logPrefix  = "relay:"
	logVersion = 1
)

// tombstone is the name of what a stream ends with that is erased. It is immutable.
var tombstone = eventlog.Tombstoned{}.PayloadType()

// LogForwarder publishes the event log in its order. [NewLogForwarder] makes one, and a [Runner] runs it. It is a
// value that never changes.
type LogForwarder struct{ logging *logging }

// NewLogForwarder describes a relay of the event log: events of the types that it is given [Events] or
// [Route] for leave in the order of their positions, or of their streams where there are several
// [Shards], and so does eventlog.Tombstoned, without a body, for streams that are erased. It takes
// the options of this package that [NewForwarder] takes, [Source] among them, which is required, and
// bus.BatchSize, which defaults to 500 here, bus.MaxAttempts, which defaults to 5, and
// bus.AttemptDelay, 1 s. Mistakes are reported by [NewRunner]. There has to be an event log, see
// [RunnerConfig].
//
// A record has the event's stream as its key and subject, its position as the attribute sequence,
// and its newest form as the body.
//
// What arrives depends on the publisher. Of an [broker.Appender] the broker itself decides where to go on,
// and it refuses a process that is not at its end: each event is there once, in order, although
// processes are killed, or go on after their lease.
//
// Any other publisher is given one batch of a shard at a time, and the relay goes on behind the
// last record before the first that failed. Then records come twice after a kill, or out of a batch
// of which one has failed. Those that come for the first time are in order if it is an
// [broker.OrderedPublisher], and else as far as it keeps the order of a batch in which one fails; and as
// long as no process goes on publishing after its lease, 30 s or more.
//
// A call of the publisher that ignores its context is given up 1 s after [PublishTimeout]; of a shard
// four may go on like that, in a process, and no more are made before one returns.
//
// One process at a time works on a shard. While the broker is away, [broker.ErrUnavailable], nothing is
// written: the relay tries again after 1 s, and then after twice as long each time, up to 30 s, or
// as soon as its circuit is reset: see [WithCircuit]. A destination that is missing is looked for
// as [NewForwarder] does. If the broker refuses an event, if an event cannot be read, and after
// MaxAttempts with any other error, the shard halts until [Runner.Resume], unless [Park] says
// otherwise.
//
// The name is stored: under another one everything is published from the beginning. A type that is
// added is published from where the relay has come to when the first process that has it runs: the types
// are stored, too. A process that lacks one of them, since it is of an older release or the type was
// removed, stops in front of the first event of it, and leaves the shard to others; [LogStats] says so. If
// there are no others, [Runner.Resume] has the relay forget the types that its process lacks.
func NewLogForwarder(name string, pub broker.Publisher, options ...bus.ConsumerOption) LogForwarder {
	p, config := newPublishing(name, pub, options)
	l := &logging{publishing: p, batch: cmp.Or(config.BatchSize, logBatch), attempts: cmp.Or(config.MaxAttempts, logAttempts), delay: logDelay}
	l.shardCount = max(l.shardCount, 1)
	if config.AttemptDelay > 0 {
		l.delay = config.AttemptDelay
	}
	l.sequence, _ = pub.(broker.OrderedPublisher)
	if l.appender, _ = pub.(broker.Appender); l.appender == nil && pub != nil {
		p.needDestinations()
	}
	for i, option := range options {
		if option == nil {
			p.mistake("option %d is nil", i)
		}
	}
	l.checkLog(config)
	return LogForwarder{l}
}

// Shards is the number of parts of a [NewLogForwarder] that are published beside each other, up to 64; the
// order is kept within each stream. Defaults to 1, which keeps the order of the whole log. It
// cannot be changed but with the name.
func Shards(n int) bus.ConsumerOption {
	return publishOption(func(p *publishing) {
		if p.shardCount = n; n < 1 || n > store.Slots {
			p.mistake("Shards %d: 1 to %d are allowed", n, store.Slots)
		}
	})
}

// Park has a [NewLogForwarder] put aside what it cannot publish, and go on. [Runner.Parked] lists that.
// Defaults to halting the shard, which leaves nothing out.
func Park() bus.ConsumerOption {
	return publishOption(func(p *publishing) { p.park = true })
}

// Name returns the name of the relay.
func (l LogForwarder) Name() string {
	if l.logging == nil {
		return ""
	}
	return l.logging.name
}

// logging is what a LogForwarder stands for. It does not change once a runner has it, but for what is
// behind pointers.
type logging struct {
	*publishing
	appender broker.Appender         // nil for any other publisher
	sequence broker.OrderedPublisher // likewise
	batch    int
	attempts int
	delay    time.Duration
	by       atomic.Pointer[Runner]

	types  *eventlog.Types
	stored []string // names of events
	shards []*shard
}

// checkpoint is the name of the relay among the readers of the log.
func (l *logging) checkpoint() string { return logPrefix + l.name }

func (l *logging) checkLog(config bus.ConsumerConfig) {
	if err := limits.CheckKey("name", l.checkpoint()); err != nil || l.name == "" {
		l.mistake("name %q: 1 to %d bytes of text are allowed", l.name, limits.Key-len(logPrefix))
	}
	if l.batch < 1 || l.batch > mostBatch {
		l.mistake("BatchSize %d: 1 to %d is allowed", l.batch, mostBatch)
	}
	if l.attempts < 1 {
		l.mistake("MaxAttempts %d: 1 or more is allowed", l.attempts)
	}
	if len(l.consumers) > 0 {
		l.mistake("For means nothing to a log relay")
	}
	if l.circuit == nil {
		l.mistake("the circuit is nil")
	}
	fields := reflect.ValueOf(config)
	for i := range fields.NumField() {
		field := fields.Type().Field(i)
		allowed := []string{"BatchSize", "MaxAttempts", "AttemptDelay"}
		if field.IsExported() && !fields.Field(i).IsZero() && !slices.Contains(allowed, field.Name) {
			l.mistake("option %s means nothing to a log relay", field.Name)
		}
	}
}

// in implements Relay.
func (relay LogForwarder) in(r *Runner) error {
	l := relay.logging
	if l == nil {
		return errors.New("relay: a LogForwarder must be made by relay.NewLogForwarder, not as a zero value")
	}
	var errs []error
	wrong := func(err error) { errs = append(errs, fmt.Errorf("relay: log relay %q: %w", l.name, err)) }
	for _, text := range l.mistakes {
		wrong(errors.New(strings.TrimPrefix(text, "relay: ")))
	}
	if slices.ContainsFunc(r.logs, func(other *logging) bool { return other.name == l.name }) {
		wrong(errors.New("it is given twice"))
	}
	if err := r.store.Events(); err != nil {
		wrong(err)
	} else if r.config.Log == nil {
		wrong(errNoLog)
	} else {
		errs = append(errs, l.fits(r.config.Log.Types()))
	}
	r.logs = append(r.logs, l)
	return errors.Join(errs...)
}

// errNoLog is of what needs an event log.
var errNoLog = errors.New("there is no event log: give it to RunnerConfig.Log")

// fits reports events that the log does not know.
func (l *logging) fits(types *eventlog.Types) error {
	var errs []error
	for _, r := range l.inOrder {
		goType, known := types.GoType(r.name)
		switch {
		case r.name == "": // reported already
		case !known:
			errs = append(errs, fmt.Errorf("relay: log relay %q: %w", l.name, &eventlog.UnknownTypeError{Type: r.name}))
		case goType != r.goType:
			errs = append(errs, fmt.Errorf("relay: log relay %q: event %q is %s, not %s", l.name, r.name, goType, r.goType))
		}
	}
	if len(l.inOrder) > 0 && l.routes[tombstone] == nil && l.inOrder[0].destination == "" && l.appender == nil {
		errs = append(errs, fmt.Errorf("relay: log relay %q: the first route has no destination for streams that are erased: give a relay.Route[eventlog.Tombstoned]", l.name))
	}
	return errors.Join(errs...)
}

// complete adds what is known of the events.
func (l *logging) complete(types *eventlog.Types) {
	l.types = types
	if l.routes[tombstone] == nil {
		r := &route{name: tombstone, public: tombstone, goType: reflect.TypeFor[eventlog.Tombstoned](), destination: l.inOrder[0].destination}
		l.routes[tombstone], l.inOrder = r, append(l.inOrder, r)
	}
	for _, r := range l.inOrder {
		l.stored = append(l.stored, types.Names(r.name)...)
	}
	for n := range l.shardCount {
		l.shards = append(l.shards, &shard{logging: l, number: n, limit: l.batch, window: int64(l.batch) * int64(l.shardCount)})
	}
}

// enterLogs gives log relays their checkpoints, and asks brokers whether they are what is needed.
func (r *Runner) enterLogs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*statementTimeout)
	defer cancel()
	var errs []error
	for _, l := range r.logs {
		errs = append(errs, r.enter(ctx, l), l.try(ctx))
	}
	return errors.Join(errs...)
}

// try asks the broker where the first shard stands. One that is away is none to refuse.
func (l *logging) try(ctx context.Context) error {
	if l.appender == nil {
		return nil
	}
	_, _, err := l.shards[0].last(ctx, min(l.timeout, statementTimeout))
	if err == nil || errors.Is(err, broker.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("log relay %q: %w", l.name, err)
}

// enter gives the relay its checkpoints, unless it has them.
func (r *Runner) enter(ctx context.Context, l *logging) error {
	sub := store.Subscription{Name: l.checkpoint(), Version: logVersion, Shards: l.shardCount, Filter: "{}"}
	rows, err := r.store.Subscriptions(ctx, r.db, sub.Name)
	if err == nil && len(rows) == 0 {
		err = txn.InTx(ctx, r.db, func(tx bun.Tx) error { return r.store.Subscribe(ctx, tx, sub) })
		if err == nil {
			rows, err = r.store.Subscriptions(ctx, r.db, sub.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("log relay %q: %w", l.name, err)
	}
	if n := len(rows); n != l.shardCount {
		return fmt.Errorf("log relay %q: Shards %d: it has %d already: give it another name", l.name, l.shardCount, n)
	}
	return r.announce(ctx, l)
}
