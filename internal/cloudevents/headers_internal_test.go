package cloudevents

import (
	"maps"
	"strings"
	"testing"
	"unicode/utf8"
)

// Headers are seen through a whole relay otherwise, which is too slow for a fuzz target.

// FuzzHeaders: what goes out comes in as it was, and can travel anywhere.
func FuzzHeaders(f *testing.F) {
	f.Add("tenant", "acme", "x-internal", "1")
	f.Add("odd name", "a\r\nb", "ключ", "100%")
	f.Add("Nats-Msg-Id", "1", "asyncmonolith-run-traceparent", "00-1-2-01")
	f.Add("%41", "%zz", "", "\x00\xff")
	f.Fuzz(func(t *testing.T, one, first, two, second string) {
		headers := map[string]string{one: first, two: second}
		if one == "" || two == "" {
			return
		}
		want := make(map[string]string)
		for name, value := range headers {
			if run, ok := strings.CutPrefix(name, runPrefix); ok && run != "" {
				name = run
			} else if stays(name) {
				continue
			} else if _, replaced := headers[runPrefix+name]; replaced {
				continue
			}
			if stays(name) {
				return // no telemetry has such a field
			}
			want[name] = value
		}
		out := Outgoing(headers)
		for name, value := range out {
			if !isToken(strings.ReplaceAll(name, "%", "")) || Printable(value) != value || !utf8.ValidString(value) {
				t.Errorf("got header %q: %q, want it to travel anywhere", name, value)
			}
		}
		in, err := Incoming(out)
		if err != nil || !maps.Equal(in, want) {
			t.Errorf("got %q by %q, error %v, want %q", in, out, err, want)
		}
	})
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{"": "", "é <&> %": "é <&> %", "a\nb": "a%0Ab", "\xff": "%FF", "\u0085": "%C2%85",
		"\ufffd": "%EF%BF%BD", "a\xe9\x00": "a%E9%00"} {
		if got := Printable(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
