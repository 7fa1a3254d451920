package bus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"
)

// Upcaster converts the stored text of a payload from one schema to the next. If the stored form of a
// payload type changes incompatibly, give the type a method that returns its upcasters:
//
//	func (OrderPlaced) Upcasters() []bus.Upcaster { return []bus.Upcaster{fromCents, withCurrency} }
//
// The first one converts from schema 1, the second one from schema 2, and OrderPlaced is now written
// in schema 3. What was stored before the type had the method is schema 1. The method is called on
// the zero value and must always return the same functions.
//
// A message keeps the schema in which it was produced: see [Message.Schema]. Its text passes
// through the upcasters before it is decoded, wherever it comes from: pending and poisoned
// messages, schedules, and records of a broker. A process that does not know a message's schema,
// because a newer release has produced it, snoozes the message for 1 s to 30 s, so that a newer
// process gets it. The wait is recorded in the errors of the message. eventlog.Event uses the
// method, too.
//
// An upcaster must be pure. It is called for each delivery, concurrently, within the consumer's
// timeout. If it fails or panics, the message is poisoned with a [DecodeError]. If it returns
// [Discard], the message is obsolete and is removed.
type Upcaster func(ctx context.Context, text []byte) ([]byte, error)

// evolves is a payload type whose schema has changed.
type evolves interface{ Upcasters() []Upcaster }

// schemas are the upcasters of a payload type. Nil is a type with one schema.
type schemas []Upcaster

// schemasOf returns the schemas of a payload's type, given its zero value.
func schemasOf(zero any) (s schemas, err error) {
	p, ok := zero.(evolves)
	if !ok {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("payload %T: Upcasters panicked on the zero value: %v", zero, r)
		}
	}()
	s = p.Upcasters()
	for i, u := range s {
		if u == nil {
			return nil, fmt.Errorf("payload %T: the upcaster of schema %d is nil", zero, i+1)
		}
	}
	return s, nil
}

func (s schemas) newest() int { return len(s) + 1 }

// upcast converts a text to the newest schema. Schema 0 is the newest.
func (s schemas) upcast(ctx context.Context, schema int, text []byte) ([]byte, error) {
	if schema == 0 {
		return text, nil
	}
	if schema < 0 || schema > s.newest() {
		return nil, &newerSchemaError{schema, s.newest()}
	}
	for from := schema; from < s.newest(); from++ {
		var err error
		if text, err = s[from-1].call(ctx, text); err != nil {
			return nil, &upcastError{from, err}
		}
	}
	return text, nil
}

// call returns a panic as an error.
func (u Upcaster) call(ctx context.Context, text []byte) (newer []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return u(ctx, text)
}

// upcastError is an error of an upcaster.
type upcastError struct {
	from int
	err  error
}

func (e *upcastError) Error() string {
	return fmt.Sprintf("upcast from schema %d: %s", e.from, withoutContent(e.err))
}
func (e *upcastError) Unwrap() error { return e.err }

// newerSchemaError reports a text that a newer version of the application has written.
type newerSchemaError struct{ schema, newest int }

func (e *newerSchemaError) Error() string {
	return fmt.Sprintf("schema %d is unknown, 1 to %d are known: a newer version of the application wrote the payload", e.schema, e.newest)
}

// The wait of a message whose schema is not known: as long as it has existed, within bounds.
const leastStandBack, mostStandBack = time.Second, 30 * time.Second

// stored is a payload as it is stored.
type stored struct {
	payloadType string
	schemas     schemas
	schema      int // 0: the newest
	text        []byte
	created     time.Time
}

// failure returns the outcome of a payload that could not be decoded into a Go type.
func (s stored) failure(goType reflect.Type, err error) error {
	if u, ok := err.(*upcastError); ok && OutcomeOf(u.err).Outcome == Discarded {
		return u.err
	}
	decode := &DecodeError{PayloadType: s.payloadType, GoType: goType.String(), Err: err}
	if isNewer(err) {
		return standBack(s.created, decode)
	}
	return Permanent(decode)
}

// standBack returns the outcome of a message that a newer process can read.
func standBack(created time.Time, err error) error {
	wait := min(max(time.Since(created), leastStandBack), mostStandBack)
	return &OutcomeError{Outcome: Snoozed, Delay: wait, Err: fmt.Errorf("%w: %w", ErrNotCounted, err)}
}

func isNewer(err error) bool {
	_, newer := errors.AsType[*newerSchemaError](err)
	return newer
}

// of returns the payload of a message as it is stored. It is in the newest schema if the consumer is
// called without its message, and if the message delivers an event.
func (c *Consumer) of(m *Message, text []byte) stored {
	s := stored{payloadType: c.payloadType, schemas: c.schemas, text: text}
	if m != nil && m.Event == nil && (m.Consumer == c.name || m.Consumer == "") {
		s.schema, s.created = m.Schema, m.CreatedAt
	}
	return s
}

// ofContext is of for the message of a context.
func (c *Consumer) ofContext(ctx context.Context, text []byte) stored {
	m, _ := MessageFromContext(ctx)
	return c.of(m, text)
}
