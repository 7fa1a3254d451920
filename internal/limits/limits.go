package limits

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// Payload is the largest encoded payload unless configured otherwise, in bytes.
	Payload = 1 << 20
	// Headers bounds the names and values of a message's headers together, in bytes.
	Headers = 8 << 10
	// Key bounds insert ids, and names and tags of schedules, in bytes, and the stored
	// names of consumers and payloads, so that every database can index them.
	Key = 255
	// Timeout is the longest that a consumer may have.
	Timeout = time.Hour
	// Backoff is the longest wait of middleware.Exponential.
	Backoff = 15 * time.Minute
)

// What is wrong with a value. Package bus hands these out under its own names.
var (
	ErrTooLarge = errors.New("too large")
	ErrText     = errors.New("text cannot be stored")
	ErrOption   = errors.New("not allowed")
)

// CheckText reports why a string cannot be stored in a text column of every
// supported database: it holds a NUL byte or is not valid UTF-8.
func CheckText(s string) error {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return fmt.Errorf("a NUL byte at offset %d", i)
	}
	if !utf8.ValidString(s) {
		return errors.New("invalid UTF-8")
	}
	return nil
}

// CheckName reports why s cannot be the stored name of a consumer or payload.
func CheckName(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > Key:
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(s), Key)
	}
	if err := CheckText(s); err != nil {
		return fmt.Errorf("has %w", err)
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Errorf("has a control character at offset %d", i)
	}
	return nil
}

// CheckKey reports why s cannot be stored as an insert id, a name or a tag.
func CheckKey(what, s string) error {
	if len(s) > Key {
		return fmt.Errorf("%s: %w: %d bytes, at most %d are allowed", what, ErrTooLarge, len(s), Key)
	}
	if err := CheckText(s); err != nil {
		return fmt.Errorf("%s %q: %w: %w", what, s, ErrText, err)
	}
	return nil
}

// CheckHeaders reports why headers cannot be stored.
func CheckHeaders(headers map[string]string) error {
	size := 0
	for key, value := range headers {
		size += len(key) + len(value)
	}
	if size > Headers { // first, since the errors below quote names
		return fmt.Errorf("headers: %w: %d bytes, at most %d are allowed", ErrTooLarge, size, Headers)
	}
	for key, value := range headers {
		if key == "" {
			return fmt.Errorf("%w: a header needs a name", ErrOption)
		}
		if err := errors.Join(CheckText(key), CheckText(value)); err != nil {
			return fmt.Errorf("header %q: %w: %w", key, ErrText, err)
		}
	}
	return nil
}
