package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// What one message may have.
const (
	Most        = 100       // steps
	ResultBytes = 64 << 10  // of one encoded result
	AllBytes    = 256 << 10 // of all steps as stored
)

// storing is how long end still tries to store a result after the consumer's context has ended, because
// the step has run. It is shorter than the grace after which the consumer is abandoned.
const storing = 4 * time.Second

// Storage has the steps of one message, as text.
type Storage interface {
	// Live reports whether the message is still the caller's to run.
	Live() bool
	// Load returns the stored text. It returns bus.ErrLeaseLost if the message is gone, or not the caller's
	// any more.
	Load(ctx context.Context) (string, error)
	// Append adds to the stored text. It returns bus.ErrLeaseLost if the message is not the caller's
	// any more.
	Append(ctx context.Context, line string) error
}

// Log is the steps of one message in one attempt. It is safe for concurrent use.
type Log struct {
	storage Storage
	codec   bus.Codec
	attempt int

	mu     sync.Mutex
	loaded bool
	stored map[string]Entry
	begun  map[string]bool // in this attempt
	lost   bool            // another process may run the message
	size   int             // of the stored text
}

// New returns the steps of a message.
func New(storage Storage, codec bus.Codec, attempt int) *Log {
	return &Log{storage: storage, codec: codec, attempt: attempt, begun: make(map[string]bool)}
}

// Key is the key under which a context has a *Log.
type Key struct{}

// From returns the steps of the message that the context is of, or nil.
func From(ctx context.Context) *Log {
	log, _ := ctx.Value(Key{}).(*Log)
	return log
}

type storedKey struct{}

// WithStored has fn called after each result that was stored under the context.
func WithStored(ctx context.Context, fn func(step string)) context.Context {
	return context.WithValue(ctx, storedKey{}, fn)
}

// Run calls fn, stores its result and returns it. If the step has a result, it decodes that into the
// pointer result instead. fn returns the value to store.
func (l *Log) Run(ctx context.Context, name string, result any, fn func() (any, error)) error {
	entry, done, err := l.begin(ctx, name)
	if err != nil || done {
		if done {
			err = l.decode(entry, result)
		}
		return err
	}
	began, clock := time.Now(), store.Clock(ctx)
	value, err := fn()
	if err != nil {
		l.again(name)
		return err
	}
	text, err := l.encode(value)
	if err != nil {
		return bus.Permanent(err) // the next attempt would do the same again, and with the same result
	}
	entry = Entry{
		Name: name, Attempt: l.attempt, StartedAt: clock.UTC(), TookMicros: time.Since(began).Microseconds(), Result: text, Nil: isNil(value),
	}
	if err := l.end(ctx, entry); err != nil {
		return err
	}
	if stored, ok := ctx.Value(storedKey{}).(func(string)); ok {
		stored(name)
	}
	return nil
}

// begin returns the result of a step, or notes that it begins.
func (l *Log) begin(ctx context.Context, name string) (entry Entry, done bool, err error) {
	if err := limits.CheckName(name); err != nil {
		return entry, false, fmt.Errorf("the name %w", err)
	}
	if ctx.Err() != nil {
		return entry, false, context.Cause(ctx)
	}
	if !l.storage.Live() {
		return entry, false, bus.ErrLeaseLost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return entry, false, bus.ErrLeaseLost
	}
	if !l.loaded {
		if err := l.load(ctx); err != nil {
			return entry, false, err
		}
		if !l.storage.Live() { // what was read may be old, or the message gone
			return entry, false, bus.ErrLeaseLost
		}
	}
	if l.begun[name] {
		return entry, false, errors.New("the step has already begun in this attempt: each step of a message needs its own name")
	}
	entry, done = l.stored[name]
	if !done && len(l.stored) >= Most {
		return entry, false, fmt.Errorf("%w: the message has %d steps, at most %d are allowed", bus.ErrTooLarge, len(l.stored), Most)
	}
	l.begun[name] = true
	return entry, done, nil
}

// again lets a failed step be tried again in the same attempt.
func (l *Log) again(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.begun, name)
}

func (l *Log) load(ctx context.Context) error {
	text, err := l.storage.Load(ctx)
	if err != nil {
		return fmt.Errorf("read the steps: %w", err)
	}
	entries, err := Parse(text)
	if err != nil {
		return err
	}
	l.stored = make(map[string]Entry, len(entries))
	for _, e := range entries {
		if _, ok := l.stored[e.Name]; !ok { // twice after a lost answer: the first counts
			l.stored[e.Name] = e
		}
	}
	l.loaded, l.size = true, len(text)
	return nil
}

// end stores a result. After a lost answer it looks before it writes again.
func (l *Log) end(ctx context.Context, e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode the step: %w", err)
	}
	run := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(run, func() { time.AfterFunc(storing, cancel) })()
	l.mu.Lock()
	defer l.mu.Unlock()
	if size := l.size + len(line) + 1; size > AllBytes {
		return bus.Permanent(fmt.Errorf(
			"%w: the message's steps have %d bytes with this one, at most %d are allowed", bus.ErrTooLarge, size, AllBytes,
		))
	}
	for {
		err := l.storage.Append(ctx, string(line)+"\n")
		if err == nil {
			l.stored[e.Name] = e
			l.size += len(line) + 1
			return nil
		}
		l.lost = errors.Is(err, bus.ErrLeaseLost)
		if l.lost || !l.storage.Live() || !pause(ctx) {
			return fmt.Errorf("store the result: %w", err)
		}
		if l.load(ctx) == nil {
			if _, ok := l.stored[e.Name]; ok {
				return nil
			}
		}
	}
}

// pause waits a moment before the next try. It returns false if the time is up.
func pause(ctx context.Context) bool {
	wait := time.NewTimer(100 * time.Millisecond)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// isNil reports whether a result is nil.
func isNil(value any) bool {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return v.IsNil()
	}
	return false
}

func (l *Log) encode(value any) (string, error) {
	if isNil(value) {
		return "", nil
	}
	text, err := l.codec.Encode(value)
	switch {
	case err != nil:
		return "", fmt.Errorf("encode the result: %w", err)
	case len(text) > ResultBytes:
		return "", fmt.Errorf("%w: the result has %d bytes, at most %d are allowed", bus.ErrTooLarge, len(text), ResultBytes)
	}
	if err := limits.CheckText(string(text)); err != nil {
		return "", fmt.Errorf("encode the result: %w: %w", bus.ErrInvalidText, err)
	}
	return string(text), nil
}

// decode decodes a stored result. bus.JSON refuses a null, which is the zero value here: a type's own
// MarshalJSON can write one.
func (l *Log) decode(e Entry, into any) error {
	if _, ok := l.codec.(bus.JSON); e.Nil || ok && strings.TrimSpace(e.Result) == "null" {
		return nil
	}
	if err := l.codec.Decode([]byte(e.Result), into); err != nil {
		return &resultError{fmt.Sprintf("%T", into)[1:], err}
	}
	return nil
}

// resultError does not quote the codec's error, which may contain the result.
type resultError struct {
	into string
	err  error
}

func (e *resultError) Error() string {
	return "the stored result does not decode into " + e.into + ": the type of a step's result may change as that of a payload"
}

func (e *resultError) Unwrap() error { return e.err }
