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

// Codec encodes payloads as text and decodes them. The text must be valid UTF-8 without NUL bytes,
// because it is stored in a text column. Implementations must be safe for concurrent use.
type Codec interface {
	// Encode returns the text for a payload, which is a struct value.
	Encode(payload any) ([]byte, error)
	// Decode fills the payload that into points to.
	Decode(text []byte, into any) error
}

// JSON is the default Codec: encoding/json. It rejects strings that are not valid UTF-8 with
// [ErrInvalidText], where encoding/json would silently insert U+FFFD; use a []byte for arbitrary
// bytes. It does not check what a type's own MarshalJSON or MarshalText writes.
type JSON struct{}

// Encode implements [Codec].
func (JSON) Encode(payload any) ([]byte, error) {
	text, err := json.Marshal(payload)
	// encoding/json escapes a replacement like this, but not a real U+FFFD, so the search is
	// rarely needed.
	if err == nil && bytes.Contains(text, []byte(`\ufffd`)) && hasInvalidText(reflect.ValueOf(payload)) {
		return nil, fmt.Errorf("%w: a string is not valid UTF-8: use a []byte for arbitrary bytes", ErrInvalidText)
	}
	return text, err
}

// hasInvalidText reports whether encoding/json replaced bytes of a string in v.
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

// errNull is returned for a null payload, which encoding/json would decode as the zero value.
var errNull = errors.New("the payload is null")

// Decode implements [Codec]. It refuses null.
func (JSON) Decode(text []byte, into any) error {
	if isNull(text) {
		return errNull
	}
	return json.Unmarshal(text, into)
}

// isNull reports whether a text is null. For others it reads no more than the first character.
func isNull(text []byte) bool {
	for i, c := range text {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == 'n' && string(bytes.TrimSpace(text[i:])) == "null"
		}
	}
	return false
}

// DecodeError reports a stored payload that does not fit the consumer's type. The message is
// poisoned at once, because a retry cannot help; if a newer release has written it, the message is
// snoozed: see [Upcaster]. Use errors.As.
//
// Its text never quotes the payload, because errors are logged and payloads are not. errors.Unwrap
// returns the codec's own error.
type DecodeError struct {
	PayloadType string // stored name of the payload
	GoType      string // the consumer's type
	Err         error  // the error of the codec or of an upcaster, or a *[PanicError]
}

// Error implements error.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("bus: decode payload %q into %s: %s", e.PayloadType, e.GoType, withoutContent(e.Err))
}

// Unwrap returns the codec's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// withoutContent describes a codec error without its input, which an unmarshal error may quote.
func withoutContent(err error) string {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	var upcast *upcastError
	var newer *newerSchemaError
	switch {
	case err == nil:
		return "no reason given"
	case errors.Is(err, errNull):
		return errNull.Error()
	case errors.As(err, &upcast): // its text has no content
		return upcast.Error()
	case errors.As(err, &newer):
		return newer.Error()
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
