package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Errors of Produce and ProduceMany, all found before any SQL is sent. Use
// errors.Is; the text around them names the payload and the value.
var (
	// ErrNoConsumer: nobody consumes this payload type, so the message would be
	// lost without a trace.
	ErrNoConsumer = errors.New("no consumer is registered")
	// ErrPointerPayload: payloads are produced by value.
	ErrPointerPayload = errors.New("payload is nil or a pointer")
	// ErrTooLarge: the payload or the headers exceed the configured size.
	ErrTooLarge = errors.New("too large")
	// ErrBadText: a string holds a NUL byte or invalid UTF-8, which a text
	// column cannot store.
	ErrBadText = errors.New("text cannot be stored")
	// ErrBadOption: an option has a value that is not allowed.
	ErrBadOption = errors.New("option not allowed")
)

const maxKeyBytes = 255

// payloadProblem reports a payload that must not even be asked for its type.
func payloadProblem(payload bus.Payload) error {
	if payload == nil {
		return fmt.Errorf("%w: a nil payload", ErrPointerPayload)
	}
	if t := reflect.TypeOf(payload); t.Kind() == reflect.Pointer {
		return fmt.Errorf("%w: %s, produce the struct itself", ErrPointerPayload, t)
	}
	return nil
}

// checkMessage reports whatever of a message cannot be written. It runs twice:
// before the chain, so that nothing is traced or logged that cannot be sent,
// and after it, since middleware may have changed the message.
func (p *Producer) checkMessage(m *bus.Message) error {
	switch {
	case len(m.Payload) > p.config.MaxPayload:
		return fmt.Errorf("payload %q: %w: %d bytes, at most %d are allowed", m.PayloadType, ErrTooLarge, len(m.Payload), p.config.MaxPayload)
	case bytes.IndexByte(m.Payload, 0) >= 0 || !utf8.Valid(m.Payload):
		return fmt.Errorf("payload %q: %w: the codec wrote a NUL byte or invalid UTF-8", m.PayloadType, ErrBadText)
	case m.Delay < 0:
		return fmt.Errorf("payload %q: %w: delay %s, 0 or more is allowed", m.PayloadType, ErrBadOption, m.Delay)
	case m.Delay > 0 && !m.AvailableAt.IsZero():
		return fmt.Errorf("payload %q: %w: give Delay or AvailableAt, not both", m.PayloadType, ErrBadOption)
	case !m.AvailableAt.IsZero() && (m.AvailableAt.Year() < 1 || m.AvailableAt.Year() > 9999):
		return fmt.Errorf("payload %q: %w: available at year %d, 1 to 9999 are allowed", m.PayloadType, ErrBadOption, m.AvailableAt.Year())
	case len(m.InsertID) > maxKeyBytes:
		return fmt.Errorf("payload %q: insert id: %w: %d bytes, at most %d are allowed", m.PayloadType, ErrTooLarge, len(m.InsertID), maxKeyBytes)
	}
	if err := bus.CheckText(m.InsertID); err != nil {
		return fmt.Errorf("payload %q: insert id %q: %w: %w", m.PayloadType, m.InsertID, ErrBadText, err)
	}
	return p.checkHeaders(m)
}

func (p *Producer) checkHeaders(m *bus.Message) error {
	size := 0
	for key, value := range m.Headers {
		size += len(key) + len(value)
		if key == "" {
			return fmt.Errorf("payload %q: %w: a header needs a name", m.PayloadType, ErrBadOption)
		}
		if err := errors.Join(bus.CheckText(key), bus.CheckText(value)); err != nil {
			return fmt.Errorf("payload %q: header %q: %w: %w", m.PayloadType, key, ErrBadText, err)
		}
	}
	if size > maxHeaderBytes {
		return fmt.Errorf("payload %q: headers: %w: %d bytes, at most %d are allowed", m.PayloadType, ErrTooLarge, size, maxHeaderBytes)
	}
	return nil
}
