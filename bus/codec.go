package bus

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

// Codec turns payloads into text and back. The text must be valid UTF-8 without
// NUL bytes, because it is kept in a text column. Implementations must be safe
// for concurrent use.
type Codec interface {
	// Encode returns the text for a payload, which is a struct value.
	Encode(payload any) ([]byte, error)
	// Decode fills the payload that into points to.
	Decode(text []byte, into any) error
}

// JSON is the default Codec: encoding/json. It refuses strings that are not valid
// UTF-8, which encoding/json would silently replace by U+FFFD, with [ErrInvalidText];
// bytes of any kind belong into a []byte. It does not see into what types with a
// MarshalJSON or MarshalText of their own write.
type JSON struct{}

// Encode implements [Codec].
func (JSON) Encode(payload any) ([]byte, error) {
	text, err := json.Marshal(payload)
	// encoding/json writes so what it replaces, and U+FFFD itself as it is: looking
	// for the strings costs only those who have such a thing.
	if err == nil && bytes.Contains(text, []byte(`\ufffd`)) && hasInvalidText(reflect.ValueOf(payload)) {
		return nil, fmt.Errorf("%w: a string is not valid UTF-8: a []byte is allowed", ErrInvalidText)
	}
	return text, err
}

// hasInvalidText looks for strings that encoding/json has replaced something in.
func hasInvalidText(v reflect.Value) bool {
	if v.IsValid() && v.CanInterface() {
		switch v.Interface().(type) {
		case json.Marshaler, encoding.TextMarshaler:
			return false
		}
	}
	switch v.Kind() {
	case reflect.String:
		return !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return hasInvalidText(v.Elem())
	case reflect.Struct:
		for field, value := range v.Fields() {
			if (field.IsExported() || field.Anonymous) && field.Tag.Get("json") != "-" && hasInvalidText(value) {
				return true
			}
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if hasInvalidText(key) || hasInvalidText(value) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return false
		}
		for i := range v.Len() {
			if hasInvalidText(v.Index(i)) {
				return true
			}
		}
	}
	return false
}

// errNull is that of a payload that is null, of which encoding/json would make the zero value.
var errNull = errors.New("it is null")

// Decode implements [Codec]. It refuses null.
func (JSON) Decode(text []byte, into any) error {
	if string(bytes.TrimSpace(text)) == "null" {
		return errNull
	}
	return json.Unmarshal(text, into)
}

// DecodeError reports a stored payload that does not fit the consumer's type.
// Such a message is poisoned at once: running it again cannot help.
//
// Its text never quotes the payload, since errors are logged and payloads are
// not; the codec's own error is available through errors.Unwrap.
type DecodeError struct {
	PayloadType string
	GoType      string
	Err         error
}

// Error implements error.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("bus: decode payload %q into %s: %s", e.PayloadType, e.GoType, withoutContent(e.Err))
}

// Unwrap returns the codec's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// withoutContent describes a codec error without the input that caused it: an
// unmarshal error of encoding/json or of a user's type may quote its input.
func withoutContent(err error) string {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case err == nil:
		return "no reason given"
	case errors.Is(err, errNull):
		return errNull.Error()
	case errors.As(err, &syntax):
		return fmt.Sprintf("malformed JSON at offset %d", syntax.Offset)
	case errors.As(err, &mismatch):
		// Not the field: in a map it is a key, which is content.
		return fmt.Sprintf("value at offset %d does not fit Go type %s", mismatch.Offset, mismatch.Type)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "unexpected end of input"
	}
	return fmt.Sprintf("%s (text withheld, it may quote the payload)", reflect.TypeOf(err))
}
