package bus

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Errors of whatever writes a payload: producing, scheduling, editing. All are
// found before any SQL is sent. Use errors.Is; the text around them names the
// payload and the value.
var (
	// ErrNoConsumer: nobody consumes this payload type, so the message would be
	// lost without a trace.
	ErrNoConsumer = errors.New("no consumer is registered")
	// ErrOtherType: the payload type is registered with another Go type.
	ErrOtherType = errors.New("payload type belongs to another Go type")
	// ErrPointerPayload: payloads are passed by value.
	ErrPointerPayload = errors.New("payload is nil or a pointer")
	// ErrTooLarge: the payload, a key or the headers exceed their limit.
	ErrTooLarge = errors.New("too large")
	// ErrBadText: a string holds a NUL byte or invalid UTF-8, which a text
	// column cannot store.
	ErrBadText = errors.New("text cannot be stored")
	// ErrBadOption: an option has a value that is not allowed.
	ErrBadOption = errors.New("option not allowed")
)

// Errors of whatever is given a database handle. Use errors.Is.
var (
	// ErrSchema: the library's tables are missing, or older than this version
	// needs. The cure is outbox.Migrate, or fxmodule.Migrate under fx.
	ErrSchema = errors.New("the schema is missing or too old, run outbox.Migrate")
	// ErrNotInTx: the context belongs to a transaction that the library has begun,
	// by outbox.Producer.RunInTx or eventlog.Log.RunInTx, for a transactional
	// consumer or a projection, but the handle does not. What is written
	// would commit, or wait for locks, apart from that transaction. Pass the
	// transaction; to write apart from it on purpose, use a context from outside.
	ErrNotInTx = errors.New("the context belongs to a transaction, but the handle does not: pass the transaction")
)

const (
	// DefaultMaxPayload is the largest encoded payload unless configured
	// otherwise, in bytes.
	DefaultMaxPayload = 1 << 20
	// MaxHeaders bounds the names and values of a message's headers together,
	// in bytes.
	MaxHeaders = 8 << 10
	// MaxKey bounds insert ids, and names and tags of schedules, in bytes.
	MaxKey = 255
)

// Encode returns the stored name and text of a payload. It refuses what must
// not be written: a nil or pointer payload ([ErrPointerPayload]), one that nobody
// consumes ([ErrNoConsumer]), and one whose name belongs to another Go type
// ([ErrOtherType]). Any other error is the codec's.
func (r *Registry) Encode(payload Payload) (payloadType string, text []byte, err error) {
	if payload == nil {
		return "", nil, fmt.Errorf("%w: a nil payload", ErrPointerPayload)
	}
	if t := reflect.TypeOf(payload); t.Kind() == reflect.Pointer {
		return "", nil, fmt.Errorf("%w: %s, pass the struct itself", ErrPointerPayload, t)
	}
	payloadType = payload.PayloadType()
	consumers := r.ConsumersOf(payloadType)
	if len(consumers) == 0 {
		return "", nil, fmt.Errorf("payload %q (%T): %w", payloadType, payload, ErrNoConsumer)
	}
	if c := consumers[0]; c.payloadType == payloadType && c.goType != reflect.TypeOf(payload) {
		return "", nil, fmt.Errorf("payload %q (%T): %w: consumer %q takes %s", payloadType, payload, ErrOtherType, c.name, c.goType)
	}
	text, err = r.codec.Encode(payload)
	if err != nil {
		return "", nil, fmt.Errorf("encode payload %q: %w", payloadType, err)
	}
	return payloadType, text, nil
}

// CheckKey reports why s cannot be stored as an insert id, a name or a tag.
func CheckKey(what, s string) error {
	if len(s) > MaxKey {
		return fmt.Errorf("%s: %w: %d bytes, at most %d are allowed", what, ErrTooLarge, len(s), MaxKey)
	}
	if err := CheckText(s); err != nil {
		return fmt.Errorf("%s %q: %w: %w", what, s, ErrBadText, err)
	}
	return nil
}

// Check reports whatever of the message cannot be written; maxPayload is in
// bytes.
func (m *Message) Check(maxPayload int) error {
	if m == nil {
		return fmt.Errorf("%w: a message of the batch is nil", ErrBadOption)
	}
	err := m.check(maxPayload)
	if err != nil {
		return fmt.Errorf("payload %q: %w", m.PayloadType, err)
	}
	return nil
}

func (m *Message) check(maxPayload int) error {
	switch {
	case len(m.Payload) > maxPayload:
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, len(m.Payload), maxPayload)
	case bytes.IndexByte(m.Payload, 0) >= 0 || !utf8.Valid(m.Payload):
		return fmt.Errorf("%w: the codec wrote a NUL byte or invalid UTF-8", ErrBadText)
	case m.Delay < 0:
		return fmt.Errorf("%w: delay %s, 0 or more is allowed", ErrBadOption, m.Delay)
	case m.Delay > 0 && !m.AvailableAt.IsZero():
		return fmt.Errorf("%w: give a delay or an instant, not both", ErrBadOption)
	}
	if year := m.AvailableAt.UTC().Year(); !m.AvailableAt.IsZero() && (year < 1 || year > 9999) {
		return fmt.Errorf("%w: available at year %d in UTC, 1 to 9999 are allowed", ErrBadOption, year)
	}
	if err := CheckKey("insert id", m.InsertID); err != nil {
		return err
	}
	return CheckHeaders(m.Headers)
}

// CheckHeaders reports why headers cannot be stored.
func CheckHeaders(headers map[string]string) error {
	size := 0
	for key, value := range headers {
		size += len(key) + len(value)
	}
	if size > MaxHeaders { // first, since the errors below quote names
		return fmt.Errorf("headers: %w: %d bytes, at most %d are allowed", ErrTooLarge, size, MaxHeaders)
	}
	for key, value := range headers {
		if key == "" {
			return fmt.Errorf("%w: a header needs a name", ErrBadOption)
		}
		if err := errors.Join(CheckText(key), CheckText(value)); err != nil {
			return fmt.Errorf("header %q: %w: %w", key, ErrBadText, err)
		}
	}
	return nil
}
