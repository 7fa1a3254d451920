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

// OnError is what happens to an event that has used up its attempts.
type OnError uint8

const (
	// Halt stops the shard until [Runner.Resume]: no event is skipped.
	Halt OnError = iota
	// Park parks the event and continues; see [Runner.Parked].
	Park
	// ParkStream parks the event and all later events of its stream.
	ParkStream
)

// Projection defines which events are applied and how. It is a value, and immutable once passed to
// [NewRunner].
type Projection struct {
	// Name identifies the projection. It is stored: keep it stable. It must not begin with
	// "replay:", "relay:" or "receive:", which are reserved for other readers.
	Name string
	// Version must be raised when the result of applying events, or the set of events, changes. A
	// new version starts from the beginning beside the old one, in its own tables; see
	// [Runner.Promote]. Events up to the old version's checkpoint are replays, except those that no
	// version has applied because they are parked. Defaults to 1.
	Version int
	// On has a handler for each event type. Other events are not read.
	On []Handler
	// Batch replaces On: it gets many events at once, of the types listed in Types. All of them are
	// replays, or none. After a failure it gets fewer, down to one.
	Batch func(ctx context.Context, tx bun.Tx, events []eventlog.RecordedEvent) error
	// Types are the names of events for Batch. Defaults to none.
	Types []string
	// Categories limits the streams by category: the stream's name up to the first "-". Defaults
	// to all.
	Categories []string
	// Reset empties the projection's tables, for [Runner.Rebuild] and [Inline.Rebuild]. Without it the
	// projection cannot be rebuilt in place. Its context ends after 10 min. If it ignores that, it is
	// abandoned 5 s later; its transaction is ended, and the error is bus.ErrAbandoned.
	Reset func(ctx context.Context, tx bun.Tx) error
	// Shards is the number of parts that are applied concurrently, up to 64; the order is kept
	// within each stream. If a new version changes it, a shard's replays end at the lowest checkpoint
	// of the old shards that share streams with it. Defaults to 1, which keeps the order of the whole
	// log.
	Shards int
	// BatchSize is the maximum number of events applied in one transaction. Defaults to 500.
	BatchSize int
	// StartAtHead makes a new projection or version begin with events that get positions from now
	// on. By default it gets every event of the log. It is not allowed with Reset, because a rebuild
	// applies every event: to start again, raise the Version.
	StartAtHead bool
	// OnError is what happens to an event that cannot be applied. Defaults to Halt.
	OnError OnError
	// MaxAttempts is the number of failed attempts before OnError applies. Defaults to 5.
	MaxAttempts int
	// AttemptDelay is the wait after the first failed attempt. With the default chain it doubles up to
	// 15 min, ±50 %. Defaults to 1 s.
	AttemptDelay time.Duration
	// Timeout limits the time for one event, or one call of Batch: the chain sets it as a
	// deadline. A function that ignores it is abandoned 5 s later; its transaction is ended, and
	// the event fails with bus.ErrAbandoned. So are an upcaster, a layer of the chain and Telemetry.
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

// On makes a handler for events of type E. What fn writes through tx commits with the checkpoint.
// In fn, bus.MessageFromContext returns the message that delivers the event, with its position.
func On[E bus.Payload](fn func(ctx context.Context, tx bun.Tx, event E) error) Handler {
	sample := bus.Consume("on", func(context.Context, E) error { return nil })
	a := Handler{name: sample.PayloadType(), goType: reflect.TypeFor[E]()}
	_, a.err = bus.NewRegistry(sample)
	if fn == nil {
		a.err = errors.Join(a.err, fmt.Errorf("the function for event %q is nil", a.name))
		return a
	}
	a.fn = func(ctx context.Context, tx bun.Tx, event bus.Payload) error {
		e, ok := event.(E)
		if !ok { // impossible: newReader compares the types
			return bus.Permanent(fmt.Errorf("projection: the event is a %T", event))
		}
		return fn(ctx, tx, e)
	}
	return a
}

// reader is a projection with derived values.
type reader struct {
	Projection
	settings bus.ConsumerConfig
	apply    map[string]Handler // by stored name, including aliases
	types    []string           // current names, sorted
	stored   []string           // including aliases
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

// newReader returns an error with all mistakes in a projection.
func newReader(p Projection, types *eventlog.Types) (*reader, error) {
	p = p.withDefaults()
	r := &reader{Projection: p, apply: map[string]Handler{}}
	r.settings = bus.ConsumerConfig{Timeout: p.Timeout, MaxAttempts: p.MaxAttempts, AttemptDelay: p.AttemptDelay}
	errs := p.check()
	names := slices.Clone(p.Types)
	for i, on := range p.On {
		if on.err == nil && on.fn == nil {
			on.err = errors.New("zero value: make the entry with projection.On")
		}
		if on.err != nil {
			errs = append(errs, fmt.Errorf("the field On[%d]: %w", i, on.err))
			continue
		}
		goType, stored := types.Lookup(on.name)
		if goType != nil && goType != on.goType {
			errs = append(errs, fmt.Errorf("the field On[%d]: event %q is %s, not %s", i, on.name, goType, on.goType))
		}
		names = append(names, on.name)
		for _, name := range stored {
			r.apply[name] = on
		}
	}
	for i, name := range names {
		_, known := types.Lookup(name)
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
	check(
		p.Name != "" && limits.CheckKey("name", p.Name) == nil &&
			!slices.ContainsFunc(others, func(prefix string) bool { return strings.HasPrefix(p.Name, prefix) }),
		"Name %q: 1 to %d bytes of text that do not begin with one of %q are allowed",
		p.Name,
		limits.Key,
		others,
	)
	check(p.Version >= 1, "Version %d: 1 or more is allowed", p.Version)
	check(p.Shards >= 1 && p.Shards <= store.Slots, "Shards %d: 1 to %d are allowed", p.Shards, store.Slots)
	check(
		!p.StartAtHead || p.Reset == nil,
		"StartAtHead with Reset: only one is allowed, because a rebuild applies events before the start: to start again, raise the Version",
	)
	check(p.BatchSize >= 1, "BatchSize %d: 1 or more is allowed", p.BatchSize)
	check(p.OnError <= ParkStream, "OnError %d: Halt, Park or ParkStream is allowed", p.OnError)
	check(p.MaxAttempts >= 1, "MaxAttempts %d: 1 or more is allowed", p.MaxAttempts)
	check(p.AttemptDelay >= 0, "AttemptDelay %s: 0 or more is allowed", p.AttemptDelay)
	check(p.Timeout > 0 && p.Timeout <= limits.Timeout, "Timeout %s: more than 0 and up to %s is allowed", p.Timeout, limits.Timeout)
	for _, c := range p.Categories {
		check(c != "" && !strings.Contains(c, "-"), "category %q: the text before the first \"-\" of a stream's name is allowed", c)
	}
	check((p.Batch == nil) != (len(p.On) == 0), "either On or Batch is needed, not both")
	check((p.Batch == nil) == (len(p.Types) == 0), "Types must be set with Batch, and only with Batch")
	return errs
}

// others are the name prefixes of other readers in the same table: replays, log forwarders, and
// receivers that append. It is immutable.
var others = []string{"replay:", "relay:", "receive:"}

// filter selects a projection's events, as stored with its checkpoint.
type filter struct {
	Types      []string `json:"types"`
	Categories []string `json:"categories,omitempty"`
}

// String returns the stored form.
func (f filter) String() string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // impossible: only strings
	}
	return string(text)
}

// same reports whether a stored filter equals this one, even if events were renamed since.
func (r *reader) same(stored string, types *eventlog.Types) bool {
	var f filter
	if json.Unmarshal([]byte(stored), &f) != nil {
		return false
	}
	for i, name := range f.Types {
		if _, names := types.Lookup(name); names != nil {
			f.Types[i] = names[0]
		}
	}
	slices.Sort(f.Types)
	f.Types = slices.Compact(f.Types)
	return f.String() == r.filter
}

// page is the filter of a shard.
func (r *reader) page(shard int) store.EventFilter {
	f := store.EventFilter{
		Types: r.stored, Categories: r.Categories, Reader: r.Name, Version: r.Version, ParkStreams: r.OnError == ParkStream,
	}
	if r.Shards > 1 {
		f.SlotFrom, f.SlotTo = store.SlotsOf(shard, r.Shards)
	}
	return f
}
