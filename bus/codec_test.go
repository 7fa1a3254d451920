package bus_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// canary stands for what is confidential in a payload.
const canary = "4111-1111-1111-1111"

// assertNoCanary prints value in every way a program might, and looks for the canary.
func assertNoCanary(t *testing.T, value any) {
	t.Helper()
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Error("failed", "value", value)
	texts := map[string]string{
		"%v": fmt.Sprintf("%v", value), "%+v": fmt.Sprintf("%+v", value), "%s": fmt.Sprintf("%s", value), "%q": fmt.Sprintf("%q", value),
		"a log line": logged.String(),
	}
	if err, ok := value.(error); ok {
		texts["a wrapped error"] = fmt.Errorf("consume: %w", err).Error()
		verdict := bus.OutcomeOf(fmt.Errorf("outer: %w", err))
		texts["its verdict"] = verdict.Error() + verdict.Reason
	}
	for how, text := range texts {
		if strings.Contains(text, canary) || strings.Contains(text, canary[:9]) {
			t.Errorf("printed as %s: got %q, want nothing of the payload in it", how, text)
		}
	}
}

// secret is a payload with every way of going wrong.
type secret struct {
	Number  int            `json:"number"`
	Counts  map[string]int `json:"counts"`
	Paid    time.Time      `json:"paid"`
	Every   time.Duration  `json:"every"`
	Quoting quoting        `json:"quoting"`
	Text    quotingText    `json:"text"`
	Inner   struct {
		Flag bool `json:"flag"`
	} `json:"inner"`
}

func (secret) PayloadType() string { return "secret" }

type quoting struct{}

func (*quoting) UnmarshalJSON(text []byte) error { return fmt.Errorf("cannot make sense of %s", text) }

type quotingText struct{}

func (*quotingText) UnmarshalText(text []byte) error {
	return fmt.Errorf("%w: %s", errMail, text)
}

// quotingCodec fails with its input in the error.
type quotingCodec struct{ err error }

func (quotingCodec) Encode(any) ([]byte, error) { return nil, errors.New("not encoded") }

func (c quotingCodec) Decode(text []byte, _ any) error {
	return errors.Join(fmt.Errorf("unreadable: %s", text), c.err)
}

func TestDecodeErrorsNeverQuoteThePayload(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		codec   bus.Codec
		payload string
		want    string // what the text may and should say
	}{
		{"a syntax error", bus.JSON{}, `{"number": ` + canary + `}`, "malformed JSON at offset"},
		{"a payload that is no JSON at all", bus.JSON{}, canary, "malformed JSON"},
		{"a canary after the end", bus.JSON{}, `{} ` + canary, "malformed JSON at offset"},
		{"a payload that breaks off", bus.JSON{}, `{"number": "` + canary, "malformed JSON"},
		{"an empty payload", bus.JSON{}, "", "malformed JSON at offset 0"},
		{"a text for a number", bus.JSON{}, `{"number": "` + canary + `"}`, "does not fit Go type int"},
		{"a number that does not fit", bus.JSON{}, `{"number": 4111.1111e300}`, "does not fit Go type int"},
		{"a wrong value under a confidential map key", bus.JSON{}, `{"counts": {"` + canary + `": "x"}}`, "does not fit Go type int"},
		{"an object for a text", bus.JSON{}, `{"every": {"` + canary + `": 1}}`, "does not fit Go type time.Duration"},
		{"a text for the whole payload", bus.JSON{}, `"` + canary + `"`, "does not fit Go type bus_test.secret"},
		{"a wrong nested value", bus.JSON{}, `{"inner": {"flag": "` + canary + `"}}`, "does not fit Go type bool"},
		{"an unreadable time", bus.JSON{}, `{"paid": "` + canary + `"}`, "*time.ParseError (text withheld"},
		{"an UnmarshalJSON that quotes its input", bus.JSON{}, `{"quoting": "` + canary + `"}`, "text withheld"},
		{"an UnmarshalText that quotes its input", bus.JSON{}, `{"text": "` + canary + `"}`, "text withheld"},
		{"a codec that quotes its input", quotingCodec{}, canary, "text withheld"},
		{"a codec that wants more input and quotes what it has", quotingCodec{io.ErrUnexpectedEOF}, canary, "unexpected end of input"},
		{"a codec that meets the end and quotes what it has", quotingCodec{io.EOF}, canary, "unexpected end of input"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			consumer := bus.Consume("charge", ignore[secret])
			err := consumer.Consume(t.Context(), test.codec, []byte(test.payload))
			assertNoCanary(t, err)
			assertDecodeError(t, err, test.want)
			err = access.CheckPayload(consumer, test.codec, []byte(test.payload))
			assertNoCanary(t, err)
			assertDecodeError(t, err, test.want)
		})
	}
}

// assertDecodeError wants a permanent DecodeError of secret that says want.
func assertDecodeError(t *testing.T, err error, want string) {
	t.Helper()
	var decode *bus.DecodeError
	if !errors.As(err, &decode) {
		t.Fatalf("got %v, want a *bus.DecodeError", err)
	}
	if decode.PayloadType != "secret" || decode.GoType != "bus_test.secret" || decode.Err == nil {
		t.Errorf("got %q into %q, error %v, want \"secret\" into \"bus_test.secret\" and the codec's error", decode.PayloadType,
			decode.GoType, decode.Err)
	}
	if decode.Unwrap() != decode.Err {
		t.Errorf("Unwrap: got %v, want the codec's error", decode.Unwrap())
	}
	if prefix := `bus: decode payload "secret" into bus_test.secret: `; !strings.HasPrefix(err.Error(), prefix) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got text %q, want it to start with %q and to have %q", err, prefix, want)
	}
	if got := bus.OutcomeOf(err).Outcome; got != bus.Condemned {
		t.Errorf("got outcome %s, want %s: running it again cannot help", got, bus.Condemned)
	}
}

func TestDecodeErrorsGiveTheCodecsErrorOnRequest(t *testing.T) {
	t.Parallel()
	consumer := bus.Consume("charge", ignore[secret])
	err := consumer.Consume(t.Context(), bus.JSON{}, []byte(`{"number": "x"}`))
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) || mismatch.Field != "number" {
		t.Errorf("got %v, want the *json.UnmarshalTypeError behind it", err)
	}
	if err := consumer.Consume(t.Context(), bus.JSON{}, []byte(`{"text": "x"}`)); !errors.Is(err, errMail) {
		t.Errorf("got %v, want the error of UnmarshalText behind it", err)
	}
}

func TestJSONRoundTrip(t *testing.T) {
	t.Parallel()
	want := orderPlaced{OrderID: "o-1 é\u2028<>&", Amount: -3}
	text, err := bus.JSON{}.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := limits.CheckText(string(text)); err != nil {
		t.Errorf("got text %q, want it storable: %v", text, err)
	}
	var got orderPlaced
	if err := (bus.JSON{}).Decode(text, &got); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestJSONTextIsAlwaysStorable(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"nul\x00byte", "\ud7ff", "\ufffd", `\ufffd`} {
		text, err := bus.JSON{}.Encode(orderPlaced{OrderID: id})
		if err != nil {
			t.Errorf("%q: got error %v, want none", id, err)
		}
		if err := limits.CheckText(string(text)); err != nil {
			t.Errorf("%q: got text %q, want it storable: %v", id, text, err)
		}
	}
}

// TestJSONRefusesInvalidText: encoding/json would store another text than it was given.
func TestJSONRefusesInvalidText(t *testing.T) {
	t.Parallel()
	bad := "a\xffb"
	type inner struct{ Text *string }
	type embedded struct{ inner }
	for name, value := range map[string]any{
		"a field": orderPlaced{OrderID: bad}, "a key": map[string]int{bad: 1}, "a pointer in a struct": embedded{inner{&bad}},
		"in a list of anything": []any{1, map[string]any{"k": []string{"", bad}}}, "in an array": [2]string{"", bad},
	} {
		if text, err := (bus.JSON{}).Encode(value); !errors.Is(err, bus.ErrInvalidText) || strings.Contains(err.Error(), "a\xff") {
			t.Errorf("%s: got %q, %v, want ErrInvalidText without the text", name, text, err)
		}
	}
	var none *string
	for name, value := range map[string]any{
		"U+FFFD": orderPlaced{OrderID: "\ufffd"}, "an escape of it, as text": orderPlaced{OrderID: `\ufffd`},
		"JSON that has one": struct{ Raw json.RawMessage }{json.RawMessage(`"\ufffd"`)},
		"bytes":             struct{ Text, Bytes any }{`\ufffd`, []byte(bad)},
		"what is left out": struct {
			Text string
			Out  string `json:"-"`
			None *string
			At   time.Time
		}{`\ufffd`, bad, none, time.Time{}},
	} {
		if _, err := (bus.JSON{}).Encode(value); err != nil {
			t.Errorf("%s: got %v, want it encoded", name, err)
		}
	}
}

func BenchmarkJSONEncode(b *testing.B) {
	payload := orderPlaced{OrderID: strings.Repeat("order ", 40)}
	for b.Loop() {
		if _, err := (bus.JSON{}).Encode(payload); err != nil {
			b.Fatal(err)
		}
	}
}

func TestJSONReportsWhatItCannotEncode(t *testing.T) {
	t.Parallel()
	if text, err := (bus.JSON{}).Encode(func() {}); err == nil {
		t.Errorf("got %q, want an error", text)
	}
}

func TestCheckText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		text string
		want string // part of the error; empty: storable
	}{
		{"an empty text", "", ""},
		{"a plain text", "order:17", ""},
		{"text beyond ASCII", "žluťoučký 馬 🐎", ""},
		{"control characters other than NUL", "\t\n\x01\x7f", ""},
		{"a NUL byte", "ab\x00c", "NUL byte at offset 2"},
		{"a NUL byte first", "\x00", "NUL byte at offset 0"},
		{"Latin-1", "caf\xe9", "invalid UTF-8"},
		{"a character cut in half", "🐎"[:2], "invalid UTF-8"},
		{"a surrogate", "\xed\xa0\x80", "invalid UTF-8"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := textOf(limits.CheckText(test.text))
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("CheckText(%q): got %q, want %q", test.text, got, test.want)
			}
		})
	}
}

// TestANullIsNoPayload: encoding/json would make the zero value of it, and the consumer would run with that.
func TestANullIsNoPayload(t *testing.T) {
	t.Parallel()
	var into struct{ ID string }
	for _, text := range []string{"null", " null\n"} {
		if err := (bus.JSON{}).Decode([]byte(text), &into); err == nil || !strings.Contains(err.Error(), "null") {
			t.Errorf("%q: got %v, want an error", text, err)
		}
	}
}
