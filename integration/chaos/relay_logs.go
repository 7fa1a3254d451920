//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

// LogConfig has a worker pass its event log on to a broker, or take another's from there. Each
// event is a Job, whose Key is its stream.
type LogConfig struct {
	Shards  int  // parts in which the log leaves; 0 if it does not
	Enters  bool // what the broker has is appended
	Freezes bool // the first append of each shard goes on only once it may: see Thaw
}

// Names of what a log becomes.
const (
	LogStream   = "ledger" // of the broker, which begins its subjects, and of the relay
	LogCategory = "remote" // of streams that come from another log
	Stale       = "append" // the consumer whose runs are appends that were frozen; its jobs are shards
)

const (
	// logTimeout is how long the broker may take. The lease of a shard lasts for 20 s and twice that.
	logTimeout = time.Second
	// frozenFor is how long an append is frozen at most.
	frozenFor = 2 * time.Minute
)

// logged tells whether there is an event log.
func (c LogConfig) logged() bool { return c.Shards > 0 || c.Enters }

// registry makes a registry, with events if there is a log.
func (c LogConfig) registry(consumers []bus.Consumer) (*bus.Registry, error) {
	if !c.logged() {
		return bus.NewRegistry(consumers...)
	}
	types, err := eventlog.NewTypes(eventlog.Event[Job]())
	if err != nil {
		return nil, fmt.Errorf("chaos: registry: %w", err)
	}
	return bus.RegistryConfig{Events: types}.NewRegistry(consumers...)
}

// log makes the event log, if there is one.
func (c LogConfig) log(registry *bus.Registry, producer *outbox.Producer) (*eventlog.Log, error) {
	if !c.logged() {
		return nil, nil
	}
	return eventlog.NewLog(registry, producer, eventlog.LogConfig{})
}

// logRelay is what passes the log on.
func (r *relays) logForwarder() (forwarder relay.LogForwarder, err error) {
	appender, err := amnats.NewAppender(r.nc, amnats.AppenderConfig{Stream: LogStream, Prefix: LogStream, Timeout: logTimeout})
	if err != nil {
		return forwarder, err
	}
	return relay.NewLogForwarder(
		LogStream,
		&frozen{Appender: appender, relays: r, shards: make(map[int]bool)},
		relay.LogConfig{
			Source: "/chaos", Shards: r.config.Log.Shards, PublishTimeout: logTimeout, BatchSize: 100,
			AttemptDelay: 50 * time.Millisecond, Routes: []relay.Route{relay.To[Job]("")},
		},
	), nil
}

// frozen is an appender whose process is killed around an append, or stopped in front of it.
type frozen struct {
	*amnats.Appender
	relays *relays

	mu     sync.Mutex
	shards map[int]bool // of which an append was frozen
}

// Append implements broker.Appender.
func (f *frozen) Append(ctx context.Context, shard int, after uint64, records []broker.Record) (revision uint64, err error) {
	if f.first(shard) {
		return f.late(ctx, shard, after, records)
	}
	f.relays.pass(Publishing)
	revision, err = f.Appender.Append(ctx, shard, after, records)
	f.relays.pass(Published)
	return revision, err
}

// late appends once it may, however late that is, as if it had been on its way all the time, and
// until the broker has taken or refused it.
func (f *frozen) late(ctx context.Context, shard int, after uint64, records []broker.Record) (revision uint64, err error) {
	ctx = context.WithoutCancel(ctx)
	f.relays.record(Started, shard)
	f.relays.freeze()
	for range 100 {
		if revision, err = f.Appender.Append(ctx, shard, after, records); err == nil {
			f.relays.record(Finished, shard)
			return revision, nil
		} else if errors.Is(err, broker.ErrSequenceConflict) {
			f.relays.record(Failed, shard)
			return revision, err
		}
		pause(100 * time.Millisecond) // its connection may have ended meanwhile
	}
	return revision, err
}

// first tells whether this is an append to freeze.
func (f *frozen) first(shard int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.shards[shard]
	f.shards[shard] = true
	return f.relays.config.Log.Freezes && !before
}

func (r *relays) record(kind EventKind, shard int) {
	r.must(r.recorder.Record(kind, Stale, shard, 1, 0))
}

// freeze waits until the worker's appends may go on.
func (r *relays) freeze() {
	for begun := time.Now(); time.Since(begun) < frozenFor; pause(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(r.recorder.dir, r.name+thawed)); err == nil {
			return
		}
	}
}

const thawed = ".thawed"

// Thaw lets the worker's frozen appends go on.
func (w *Worker) Thaw() error {
	return os.WriteFile(filepath.Join(w.config.Ledger, w.config.Name+thawed), nil, 0o600)
}
