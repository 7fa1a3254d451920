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
	// logPrefix begins the names of log relays' checkpoints, which are stored with those of
	// projections.
	logPrefix  = "relay:"
	logVersion = 1
)

// tombstone is the event type that ends an erased stream. It is immutable.
var tombstone = eventlog.Tombstoned{}.PayloadType()

// LogForwarder publishes the event log in order. [NewLogForwarder] makes one, and a [Runner] runs
// it. It is immutable.
type LogForwarder struct{ logging *logging }

// NewLogForwarder describes a relay of the event log. It publishes events of the types given by
// [Events] or [Route] in the order of their positions, or within each stream if there are several
// [Shards]. For an erased stream it publishes eventlog.Tombstoned, without a body.
//
// It accepts the options of this package that [NewForwarder] accepts, among them [Source], which
// is required. It also accepts bus.BatchSize (default 500), bus.MaxAttempts (default 5) and
// bus.AttemptDelay (default 1 s). [NewRunner] reports mistakes. The relay needs an event log: see
// [RunnerConfig].
//
// A record has the event's stream as its key and subject, its position as the attribute sequence,
// and its payload in the newest schema as the body.
//
// Delivery depends on the publisher. With a [broker.Appender], the broker stores the position, and
// rejects a process that is not at its end. Then each event is published once and in order, even
// if processes are killed or continue after their lease.
//
// Any other publisher gets one batch of a shard at a time, and the relay continues after the last
// record before the first failure. After a kill, or a failure within a batch, records may be
// published twice. Records published for the first time are in order if the publisher is a
// [broker.OrderedPublisher]; otherwise only if it keeps the order of a batch in which one fails.
// This holds as long as no process publishes after its lease, 30 s or more.
//
// A publisher call that ignores its context is abandoned 1 s after [PublishTimeout]. If four
// abandoned calls of a shard still run in a process, it makes no more until one returns.
//
// One process at a time works on a shard. While the broker is unavailable
// ([broker.ErrUnavailable]), nothing is written to the database. The relay retries after 1 s, then
// after twice as long each time, up to 30 s, or as soon as its circuit is reset: see
// [WithCircuit]. A missing destination is retried as by [NewForwarder]. If the broker rejects an
// event, an event cannot be read, or any other error occurs MaxAttempts times, the shard halts
// until [Runner.Resume], unless [Park] is set.
//
// The name is stored: under another name everything is published from the beginning. A new type is
// published from the position that the relay has reached when the first process with that type
// runs. The types are stored too. A process that lacks a stored type, because it is an older
// release or the type was removed, stops before the first such event and leaves the shard to other
// processes; [LogStats] reports this. If there are none, [Runner.Resume] removes the types that
// its process lacks.
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

// Shards is the number of parts of a [NewLogForwarder] that are published concurrently, up to 64.
// The order is kept within each stream. Defaults to 1, which keeps the order of the whole log. To
// change it, change the relay's name.
func Shards(n int) bus.ConsumerOption {
	return publishOption(func(p *publishing) {
		if p.shardCount = n; n < 1 || n > store.Slots {
			p.mistake("Shards %d: 1 to %d are allowed", n, store.Slots)
		}
	})
}

// Park makes a [NewLogForwarder] park events that it cannot publish, and continue. [Runner.Parked]
// lists them. By default the shard halts, so that no event is skipped.
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

// logging implements a LogForwarder. Once a runner has it, it changes only behind pointers.
type logging struct {
	*publishing
	appender broker.Appender         // nil for any other publisher
	sequence broker.OrderedPublisher // nil for any other publisher
	batch    int
	attempts int
	delay    time.Duration
	by       atomic.Pointer[Runner]

	types  *eventlog.Types
	stored []string // stored event types
	shards []*shard
}

// checkpoint is the name of the relay's checkpoint.
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

// errNoLog is returned for relays that need an event log.
var errNoLog = errors.New("there is no event log: give it to RunnerConfig.Log")

// fits returns an error for each event type that the log does not have.
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

// complete adds what depends on the event types.
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

// enterLogs creates the log relays' checkpoints and checks that the brokers support them.
func (r *Runner) enterLogs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*statementTimeout)
	defer cancel()
	var errs []error
	for _, l := range r.logs {
		errs = append(errs, r.enter(ctx, l), l.try(ctx))
	}
	return errors.Join(errs...)
}

// try asks the broker for the first shard's position. It ignores an unavailable broker.
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

// enter creates the relay's checkpoints, unless they exist.
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
