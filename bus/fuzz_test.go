package bus_test

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"testing"
	"unicode/utf8"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// Whatever is produced can either be stored as it is, or is refused with an error
// that can be told from others.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{"", "{}", "\x00", "a\x00b", "\xff", "\xed\xa0\x80", "\u2028", "é", "\ufffd", "'; DROP TABLE x; --",
		"?", "{0}"} {
		f.Add([]byte(s), s, s, s)
	}
	f.Add(bytes.Repeat([]byte("x"), 1<<10+1), "k", string(bytes.Repeat([]byte("v"), limits.Headers)),
		string(bytes.Repeat([]byte("i"), limits.Key+1)))
	f.Fuzz(func(t *testing.T, payload []byte, key, value, insertID string) {
		const maxPayload = 1 << 10
		m := bus.Message{PayloadType: "p", Payload: payload, InsertID: insertID, Headers: map[string]string{key: value}}
		storable := func(s string) bool { return utf8.ValidString(s) && !bytes.ContainsRune([]byte(s), 0) }
		allowed := len(payload) <= maxPayload && storable(string(payload)) && len(insertID) <= limits.Key && storable(insertID) &&
			key != "" && storable(key) && storable(value) && len(key)+len(value) <= limits.Headers
		err := access.CheckMessage(&m, maxPayload)
		if (err == nil) != allowed {
			t.Fatalf("check: got %v, want an error: %t", err, !allowed)
		}
		if err != nil && !errors.Is(err, bus.ErrTooLarge) && !errors.Is(err, bus.ErrInvalidText) && !errors.Is(err, bus.ErrInvalidOption) {
			t.Fatalf("check: an error of no known kind: %v", err)
		}
	})
}

// Text that is no JSON of the consumer's type is a DecodeError, which does not
// quote the payload.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "{}", `{"name":"x","count":1}`, `{"name":1}`, `{"count":1e400}`, `{"name":"\ud800"}`, "[", "null",
		`{"secret":`, "\x00"} {
		f.Add([]byte(s))
	}
	c := bus.Consume("fuzzed", func(context.Context, fuzzed) error { return nil })
	f.Fuzz(func(t *testing.T, text []byte) {
		err := access.CheckPayload(c, bus.JSON{}, text)
		var decode *bus.DecodeError
		if err != nil && !errors.As(err, &decode) {
			t.Fatalf("decode %q: an error of no known type: %v", text, err)
		}
		if err != nil && len(text) > 40 && bytes.Contains([]byte(err.Error()), text) {
			t.Fatalf("decode %q: the error quotes the payload: %v", text, err)
		}
	})
}

type fuzzed struct {
	Name  string         `json:"name"`
	Count int            `json:"count"`
	Any   map[string]any `json:"any"`
}

func (fuzzed) PayloadType() string { return "fuzzed" }

// What passes as an identifier needs no quotes, and leaves room for the longest
// name that is appended.
func FuzzTables(f *testing.F) {
	for _, s := range []string{"", "a", "_", "a_1", "1a", "A", "a-b", `a"b`, "a\x00", "ä", "a\n", "abcdefghijklmnopqrstuvwxy"} {
		f.Add(s, s)
	}
	plain := regexp.MustCompile(`\A[a-z_][a-z0-9_]*\z`)
	f.Fuzz(func(t *testing.T, schema, prefix string) {
		allowed := (schema == "" || plain.MatchString(schema) && len(schema) <= 63) &&
			(prefix == "" || plain.MatchString(prefix) && len(prefix) <= 24)
		if err := access.CheckTables(bus.Tables{Schema: schema, Prefix: prefix}); (err == nil) != allowed {
			t.Fatalf("schema %q, prefix %q: got %v, want an error: %t", schema, prefix, err, !allowed)
		}
	})
}
