package relay

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

const (
	logBatch    = 500
	mostBatch   = 1000
	logAttempts = 5
	logDelay    = time.Second
	// logPrefix begins the names of log forwarders' checkpoints, which are stored with those of
	// projections.
	logPrefix  = "relay:"
	logVersion = 1
)

// tombstone is the event type that ends an erased stream. It is immutable.
var tombstone = eventlog.Tombstoned{}.PayloadType()

// LogConfig configures a [LogForwarder]. Source and Routes are required.
type LogConfig struct {
	// Source is the CloudEvents source of the events, as in [Config].
	Source string
	// Routes has a [To] for each event type. Its destination is empty if the publisher is a
	// [broker.Appender]. Former names in eventlog.Types need no [PayloadAliases].
	Routes []Route
	// Shards is the number of parts that are published concurrently, up to 64. The order is kept
	// within each stream. It cannot be changed: a forwarder with a new name can have another number,
	// but publishes the whole log again. Defaults to 1, which keeps the order of the whole log.
	Shards int
	// ParkFailures makes the forwarder park events that it cannot publish, and continue.
	// [Runner.Parked] lists them. By default the shard halts, so that no event is skipped.
	ParkFailures bool
	// BatchSize is how many events a shard publishes at a time, up to 1000. Defaults to 500.
	BatchSize int
	// MaxAttempts is how often an event is tried. Defaults to 5.
	MaxAttempts int
	// AttemptDelay is the wait after the first failed attempt; it doubles up to 1 min. Defaults to
	// 1 s.
	AttemptDelay time.Duration
	// Structured, ContentType, PublishTimeout and Circuit are as in [Config].
	Structured     bool
	ContentType    string
	PublishTimeout time.Duration
	Circuit        *outbox.Circuit
}

// LogForwarder publishes the event log in order. [NewLogForwarder] makes one, and a [Runner] runs
// it. It is immutable.
type LogForwarder struct{ forwarder *logForwarder }

// NewLogForwarder makes a forwarder that publishes the event log. It publishes events of the types
// that have a [Route] in the order of their positions, or within each stream if there are several
// Shards. For an erased stream it publishes eventlog.Tombstoned, without a body, to the destination
// of the first route. If that is empty, add a To[eventlog.Tombstoned]; an Appender needs none.
// [NewRunner] reports configuration errors.
//
// A record has the event's stream as its key and subject, its position as the attribute sequence,
// and its payload in the newest schema as the body.
//
// Delivery depends on the publisher. With a [broker.Appender], the broker stores the position and
// rejects an append that does not follow its last record. Then each event is published once and in
// order, even if processes are killed or continue after their lease.
//
// Any other publisher gets one batch of a shard at a time, and the forwarder continues after the
// last record before the first failure. After a kill, or a failure within a batch, records may be
// published twice. Records published for the first time are in order if the publisher is a
// [broker.OrderedPublisher]. For any other publisher they are in order only if no later record of a
// batch arrives after an earlier one fails. Both hold as long as no process publishes after its
// lease, 30 s or more.
//
// A publisher call that ignores its context is abandoned 1 s after PublishTimeout. If four
// abandoned calls of a shard still run in a process, it makes no more until one returns.
// A route or upcaster that does not return is abandoned, too. The second time, its event counts as
// permanently failed.
//
// One process at a time works on a shard. While the broker is unavailable
// ([broker.ErrUnavailable]), nothing is written to the database. The forwarder retries after 1 s,
// then after twice as long each time, up to 30 s, or as soon as its circuit is reset. A missing
// destination is retried as by [NewForwarder]. If the broker rejects an event, an event cannot be
// read, or any other error occurs MaxAttempts times, the shard halts until [Runner.Resume], unless
// ParkFailures is set.
//
// The name is stored. A forwarder with a new name publishes the whole log again. Receivers drop only
// the events that they accepted within inbox.DeduplicationWindow; they accept older ones as new.
// With an Appender, a new name needs a new place, such as another nats.AppenderConfig.Prefix: beside
// the records of a forwarder with another name, [Runner.Run] returns an error, or the shard halts.
//
// Events of a type added later are published from the position that the forwarder has then reached;
// earlier ones are not. The types are stored too. A process that lacks a stored type, because it is
// an older release or the type was removed, stops before the first such event and leaves the shard
// to other processes; [Stats] reports this. If no process has the type any more, call
// [Runner.Resume], which removes the types that its process lacks.
func NewLogForwarder(name string, pub broker.Publisher, config LogConfig) LogForwarder {
	p := newPublishing(name, pub, Config{
		Source: config.Source, Routes: config.Routes, Structured: config.Structured,
		ContentType: config.ContentType, PublishTimeout: config.PublishTimeout, Circuit: config.Circuit,
	})
	config.Shards, config.BatchSize = cmp.Or(config.Shards, 1), cmp.Or(config.BatchSize, logBatch)
	config.MaxAttempts, config.AttemptDelay = cmp.Or(config.MaxAttempts, logAttempts), cmp.Or(config.AttemptDelay, logDelay)
	f := &logForwarder{publishing: p, logConfig: config}
	f.sequence, _ = pub.(broker.OrderedPublisher)
	f.appender, _ = pub.(broker.Appender)
	if f.appender == nil && pub != nil {
		p.needDestinations()
	}
	f.checkConfig()
	return LogForwarder{f}
}

func (l LogForwarder) name() string {
	if l.forwarder == nil {
		return ""
	}
	return l.forwarder.name
}

// logForwarder implements a LogForwarder. Once a runner has it, it changes only behind pointers.
type logForwarder struct {
	*publishing
	logConfig LogConfig               // with defaults
	appender  broker.Appender         // nil for any other publisher
	sequence  broker.OrderedPublisher // nil for any other publisher
	attached  atomic.Pointer[Runner]  // that it belongs to

	types  *eventlog.Types
	stored []string // stored event types
	shards []*shard
}

func (l *logForwarder) checkpoint() string { return logPrefix + l.name }

func (l *logForwarder) checkConfig() {
	if err := limits.CheckKey("name", l.checkpoint()); err != nil || l.name == "" {
		l.mistake("name %q: 1 to %d bytes of text are allowed", l.name, limits.Key-len(logPrefix))
	}
	if n := l.logConfig.Shards; n < 1 || n > store.Slots {
		l.mistake("LogConfig.Shards %d: 1 to %d are allowed", n, store.Slots)
	}
	if n := l.logConfig.BatchSize; n < 1 || n > mostBatch {
		l.mistake("LogConfig.BatchSize %d: 1 to %d is allowed", n, mostBatch)
	}
	if n := l.logConfig.MaxAttempts; n < 1 {
		l.mistake("LogConfig.MaxAttempts %d: 1 or more is allowed", n)
	}
	if d := l.logConfig.AttemptDelay; d < 0 {
		l.mistake("LogConfig.AttemptDelay %s: 0 or more is allowed", d)
	}
}

func (l *logForwarder) check(s *store.Store, log *eventlog.Log) error {
	var errs []error
	wrong := func(err error) { errs = append(errs, fmt.Errorf("relay: log forwarder %q: %w", l.name, err)) }
	for _, text := range l.mistakes {
		wrong(errors.New(strings.TrimPrefix(text, "relay: ")))
	}
	if err := s.Events(); err != nil {
		wrong(err)
	} else if log == nil {
		wrong(errors.New("RunnerConfig.Log is nil: an event log is needed"))
	} else {
		errs = append(errs, l.fits(logaccess.Types(log)))
	}
	return errors.Join(errs...)
}

// fits returns an error for each event type that the log does not have.
func (l *logForwarder) fits(types *eventlog.Types) error {
	var errs []error
	for _, r := range l.inOrder {
		goType, _ := types.Lookup(r.name)
		switch {
		case r.name == "": // reported already
		case goType == nil:
			errs = append(errs, fmt.Errorf("relay: log forwarder %q: %w", l.name, &eventlog.UnknownTypeError{Type: r.name}))
		case goType != r.goType:
			errs = append(errs, fmt.Errorf("relay: log forwarder %q: event %q is %s, not %s", l.name, r.name, goType, r.goType))
		}
	}
	if len(l.inOrder) > 0 && l.routes[tombstone] == nil && l.inOrder[0].destination == "" && l.appender == nil {
		errs = append(errs, fmt.Errorf(
			"relay: log forwarder %q: the first route has no destination, so erased streams need a route: add a relay.To[eventlog.Tombstoned]",
			l.name,
		))
	}
	return errors.Join(errs...)
}

// complete adds what depends on the event types.
func (l *logForwarder) complete(s *services) {
	types := logaccess.Types(s.log)
	l.types = types
	if l.routes[tombstone] == nil {
		r := &route{name: tombstone, public: tombstone, goType: reflect.TypeFor[eventlog.Tombstoned](), destination: l.inOrder[0].destination}
		l.routes[tombstone], l.inOrder = r, append(l.inOrder, r)
	}
	for _, r := range l.inOrder {
		_, names := types.Lookup(r.name)
		l.stored = append(l.stored, names...)
	}
	for n := range l.logConfig.Shards {
		l.shards = append(l.shards, &shard{
			services: s, logForwarder: l, number: n, limit: l.logConfig.BatchSize,
			window: int64(l.logConfig.BatchSize) * int64(l.logConfig.Shards),
		})
	}
}
