package projection

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// OnError is what becomes of an event on which a projection has used up its
// attempts.
type OnError uint8

const (
	// Halt keeps the shard where it is until [Runner.Resume]: nothing is skipped.
	Halt OnError = iota
	// Park puts the event aside and goes on; see [Runner.Parked].
	Park
	// ParkStream puts the event aside and, as they come, all later ones of its
	// stream.
	ParkStream
)

// Projection is what to do with which events. It is a value, and never changes
// once it is given to [NewRunner].
type Projection struct {
	// Name identifies the projection. It is stored: keep it stable. It does not begin with "replay:",
	// "relay:" or "receive:", as those of other readers do.
	Name string
	// Version is to be raised whenever what the projection makes of events, or
	// which events it reads, changes. A new version starts from the beginning
	// beside the old one, into tables of its own; see [Runner.Promote]. Defaults to 1.
	Version int
	// On says what to do with each type of event. Others are not read.
	On []Handler
	// Batch, instead of On, is given many events at once, of these Types. When it
	// fails it is given fewer, down to one.
	Batch func(ctx context.Context, tx bun.Tx, events []eventlog.RecordedEvent) error
	// Types are the names of events for Batch. Defaults to none.
	Types []string
	// Categories restricts what is read to streams whose names begin so, up to the
	// first "-". Defaults to all.
	Categories []string
	// Reset empties the tables of the projection, for [Runner.Rebuild]. Defaults
	// to none, with which it cannot be rebuilt in place.
	Reset func(ctx context.Context, tx bun.Tx) error
	// Shards is the number of parts that are worked on beside each other, up to
	// 64; order is kept within each stream. Defaults to 1, which keeps
	// the order of the whole log.
	Shards int
	// BatchSize is the most events applied in one transaction. Defaults to 500.
	BatchSize int
	// StartAtHead has a projection, or a version of one, that has never read before begin with the
	// events that get positions from now on. By default it gets every event there ever was.
	StartAtHead bool
	// OnError is what becomes of an event that cannot be applied. Defaults to Halt.
	OnError OnError
	// MaxAttempts is the number of failed attempts after which OnError counts.
	// Defaults to 5.
	MaxAttempts int
	// AttemptDelay is the wait after the first failed attempt. Defaults to 1 s.
	AttemptDelay time.Duration
	// Timeout bounds the time for one event, or for one call of Batch: the chain
	// sets it as a deadline. A function that ignores it is abandoned 5 s later,
	// its transaction is ended, and the event has failed with bus.ErrAbandoned.
	// Defaults to 10 s.
	Timeout time.Duration
}

// Handler is a function for one type of event, made by [On].
type Handler struct {
	name   string
	goType reflect.Type
	fn     func(ctx context.Context, tx bun.Tx, event bus.Payload) error
	err    error
}

// On applies events of type E. What it writes through tx is committed with the
// checkpoint. bus.MessageFromContext gives it the message that delivers the event, and that
// says which one it is.
func On[E bus.Payload](fn func(ctx context.Context, tx bun.Tx, event E) error) Handler {
	probe := bus.Consume("on", func(context.Context, E) error { return nil })
	a := Handler{name: probe.PayloadType(), goType: reflect.TypeFor[E]()}
	_, a.err = bus.NewRegistry(probe)
	if fn == nil {
		a.err = errors.Join(a.err, fmt.Errorf("the function for event %q is nil", a.name))
		return a
	}
	a.fn = func(ctx context.Context, tx bun.Tx, event bus.Payload) error {
		e, ok := event.(E)
		if !ok { // impossible: reader.check compares the types
			return bus.Permanent(fmt.Errorf("projection: the event is a %T", event))
		}
		return fn(ctx, tx, e)
	}
	return a
}

// reader is a projection with what follows from it.
type reader struct {
	Projection
	settings bus.ConsumerConfig
	apply    map[string]Handler // by stored name, aliases included
	types    []string           // present names, sorted
	stored   []string           // with aliases
	filter   string
	shards   []*shard
}

func (p Projection) withDefaults() Projection {
	p.Version = cmp.Or(p.Version, 1)
	p.Shards = cmp.Or(p.Shards, 1)
	p.BatchSize = cmp.Or(p.BatchSize, 500)
	p.MaxAttempts = cmp.Or(p.MaxAttempts, 5)
	p.AttemptDelay = cmp.Or(p.AttemptDelay, time.Second)
	p.Timeout = cmp.Or(p.Timeout, 10*time.Second)
	return p
}

// newReader reports everything that is wrong with a projection.
func newReader(p Projection, types *eventlog.Types) (*reader, error) {
	p = p.withDefaults()
	r := &reader{Projection: p, apply: map[string]Handler{}}
	r.settings = bus.ConsumerConfig{Timeout: p.Timeout, MaxAttempts: p.MaxAttempts, AttemptDelay: p.AttemptDelay}
	errs := p.check()
	names := slices.Clone(p.Types)
	for i, on := range p.On {
		if on.err == nil && on.fn == nil {
			on.err = errors.New("it is a zero value: make it by projection.On")
		}
		if on.err != nil {
			errs = append(errs, fmt.Errorf("the field On[%d]: %w", i, on.err))
			continue
		}
		if goType, ok := types.GoType(on.name); ok && goType != on.goType {
			errs = append(errs, fmt.Errorf("the field On[%d]: event %q is %s, not %s", i, on.name, goType, on.goType))
		}
		names = append(names, on.name)
		for _, name := range types.Names(on.name) {
			r.apply[name] = on
		}
	}
	for i, name := range names {
		known := types.Names(name)
		switch {
		case known == nil:
			errs = append(errs, &eventlog.UnknownTypeError{Type: name})
		case slices.Contains(names[:i], name):
			errs = append(errs, fmt.Errorf("event %q is given twice", name))
		default:
			r.types, r.stored = append(r.types, known[0]), append(r.stored, known...)
		}
	}
	slices.Sort(r.types)
	r.filter = filter{Types: r.types, Categories: slices.Sorted(slices.Values(p.Categories))}.String()
	for n := range p.Shards {
		s := &shard{reader: r, number: n}
		s.limit.Store(int64(p.BatchSize))
		s.window.Store(int64(p.BatchSize) * int64(p.Shards))
		r.shards = append(r.shards, s)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("projection %q: %w", p.Name, err)
	}
	return r, nil
}

func (p Projection) check() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.Name != "" && limits.CheckKey("name", p.Name) == nil && !slices.ContainsFunc(others, func(prefix string) bool { return strings.HasPrefix(p.Name, prefix) }),
		"Name %q: 1 to %d bytes of text that do not begin with one of %q are allowed", p.Name, limits.Key, others)
	check(p.Version >= 1, "Version %d: 1 or more is allowed", p.Version)
	check(p.Shards >= 1 && p.Shards <= store.Slots, "Shards %d: 1 to %d are allowed", p.Shards, store.Slots)
	check(p.BatchSize >= 1, "BatchSize %d: 1 or more is allowed", p.BatchSize)
	check(p.OnError <= ParkStream, "OnError %d: Halt, Park or ParkStream is allowed", p.OnError)
	check(p.MaxAttempts >= 1, "MaxAttempts %d: 1 or more is allowed", p.MaxAttempts)
	check(p.AttemptDelay >= 0, "AttemptDelay %s: 0 or more is allowed", p.AttemptDelay)
	check(p.Timeout > 0 && p.Timeout <= limits.Timeout, "Timeout %s: more than 0 and up to %s is allowed", p.Timeout, limits.Timeout)
	for _, c := range p.Categories {
		check(c != "" && !strings.Contains(c, "-"), "category %q: no stream has it: a category ends before the first \"-\" of a stream's name", c)
	}
	check((p.Batch == nil) != (len(p.On) == 0), "either On or Batch is needed, not both")
	check((p.Batch == nil) == (len(p.Types) == 0), "Types are needed with Batch, and only there")
	return errs
}

// others are what the names of other readers of the log begin with, which stand in the same table: replays,
// log relays, and receivers that append. It is immutable.
var others = []string{"replay:", "relay:", "receive:"}

// filter is what a projection reads, as it is stored with its checkpoint.
type filter struct {
	Types      []string `json:"types"`
	Categories []string `json:"categories,omitempty"`
}

// String returns the stored form.
func (f filter) String() string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // impossible: only strings are passed in
	}
	return string(text)
}

// same reports whether a stored filter means what this one does, although events
// may have been renamed since.
func (r *reader) same(stored string, types *eventlog.Types) bool {
	var f filter
	if json.Unmarshal([]byte(stored), &f) != nil {
		return false
	}
	for i, name := range f.Types {
		if known := types.Names(name); known != nil {
			f.Types[i] = known[0]
		}
	}
	slices.Sort(f.Types)
	f.Types = slices.Compact(f.Types)
	return f.String() == r.filter
}

// page is the filter of a shard.
func (r *reader) page(shard int) store.EventFilter {
	f := store.EventFilter{Types: r.stored, Categories: r.Categories}
	if r.Shards > 1 {
		f.SlotFrom, f.SlotTo = shard*store.Slots/r.Shards, (shard+1)*store.Slots/r.Shards
	}
	if r.OnError == ParkStream {
		f.Parked, f.Version = r.Name, r.Version
	}
	return f
}
