package bus

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// Errors of calls that write a payload: producing, scheduling, editing. They are returned before
// any SQL is sent. Use errors.Is; the surrounding text names the payload and the value.
var (
	// ErrNoConsumer means that the payload type has no consumer, so the message would be lost
	// silently. Declare names a consumer that another program runs.
	ErrNoConsumer = errors.New("no consumer is registered")
	// ErrInvalidPayload means that the payload is nil, is a pointer, or has a type that is
	// registered with another Go type. Payloads are passed by value.
	ErrInvalidPayload = errors.New("payload not allowed")
	// ErrTooLarge means that the payload, a key or the headers exceed their limit.
	ErrTooLarge = limits.ErrTooLarge
	// ErrInvalidText means that a string has a NUL byte or invalid UTF-8, which a text column
	// cannot store.
	ErrInvalidText = limits.ErrText
	// ErrInvalidOption means that an option's value is not allowed.
	ErrInvalidOption = limits.ErrOption
)

// encode returns the stored name and text of a payload. It rejects a nil or pointer payload and
// one whose name belongs to another Go type ([ErrInvalidPayload]), and one without a consumer
// ([ErrNoConsumer]). Any other error is the codec's.
func (r *Registry) encode(payload Payload) (payloadType string, text []byte, err error) {
	if payload == nil {
		return "", nil, fmt.Errorf("%w: it is nil", ErrInvalidPayload)
	}
	if t := reflect.TypeOf(payload); t.Kind() == reflect.Pointer {
		return "", nil, fmt.Errorf("%w: it is a %s, pass the struct itself", ErrInvalidPayload, t)
	}
	payloadType = payload.PayloadType()
	consumers := r.consumersOf(payloadType)
	if len(consumers) == 0 {
		return "", nil, fmt.Errorf("payload %q (%T): %w: register a consumer, or bus.Declare another program's",
			payloadType, payload, ErrNoConsumer)
	}
	if c, ok := r.typed(payloadType); ok && c.payloadType == payloadType && c.goType != reflect.TypeOf(payload) {
		return "", nil, fmt.Errorf("payload %q (%T): %w: consumer %q is registered with the Go type %s",
			payloadType, payload, ErrInvalidPayload, c.name, c.goType)
	}
	text, err = r.codec.Encode(payload)
	if err != nil {
		return "", nil, fmt.Errorf("encode payload %q: %w", payloadType, err)
	}
	return payloadType, text, nil
}

// check returns an error if the message cannot be written; maxPayload is in bytes.
func (m *Message) check(maxPayload int) error {
	if m == nil {
		return fmt.Errorf("%w: a message of the batch is nil", ErrInvalidOption)
	}
	err := m.mistake(maxPayload)
	if err != nil {
		return fmt.Errorf("payload %q: %w", m.PayloadType, err)
	}
	return nil
}

func (m *Message) mistake(maxPayload int) error {
	switch {
	case len(m.Payload) > maxPayload:
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, len(m.Payload), maxPayload)
	case bytes.IndexByte(m.Payload, 0) >= 0 || !utf8.Valid(m.Payload):
		return fmt.Errorf("%w: the codec wrote a NUL byte or invalid UTF-8", ErrInvalidText)
	case m.Delay < 0:
		return fmt.Errorf("%w: delay %s, 0 or more is allowed", ErrInvalidOption, m.Delay)
	case m.Delay > 0 && !m.AvailableAt.IsZero():
		return fmt.Errorf("%w: Delay and AvailableAt together", ErrInvalidOption)
	case m.InsertID == "" && (m.Replace || m.UniqueFor != 0):
		return fmt.Errorf("%w: Replace and UniqueFor need an InsertID", ErrInvalidOption)
	case m.Priority > Urgent:
		return fmt.Errorf("%w: priority %d, Normal, High and Urgent are allowed", ErrInvalidOption, m.Priority)
	case m.UniqueFor < 0:
		return fmt.Errorf("%w: UniqueFor %s: more than 0 is allowed", ErrInvalidOption, m.UniqueFor)
	case m.DebounceMax < 0 || m.DebounceMax > 0 && !m.Replace:
		return fmt.Errorf(
			"%w: DebounceMax %s: more than 0 is allowed, and only with Replace", ErrInvalidOption, m.DebounceMax,
		)
	case m.Replace && m.UniqueFor != 0:
		return fmt.Errorf("%w: Replace and UniqueFor together", ErrInvalidOption)
	case m.Replace && m.Event != nil:
		return fmt.Errorf("%w: an event cannot replace a message", ErrInvalidOption)
	}
	if year := m.AvailableAt.UTC().Year(); !m.AvailableAt.IsZero() && (year < 1 || year > 9999) {
		return fmt.Errorf("%w: AvailableAt in the year %d: years 1 to 9999 in UTC are allowed", ErrInvalidOption, year)
	}
	if err := errors.Join(limits.CheckKey("insert id", m.InsertID), limits.CheckKey("key", m.OrderingKey)); err != nil {
		return err
	}
	if m.Group != "" {
		if err := limits.CheckName(m.Group); err != nil {
			return fmt.Errorf("%w: the group %w", ErrInvalidOption, err)
		}
	}
	return limits.CheckHeaders(m.Headers)
}
