package relay

import (
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
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
				return // nobody's telemetry has such a field
			}
			want[name] = value
		}
		out := outgoing(headers)
		for name, value := range out {
			if !isToken(strings.ReplaceAll(name, "%", "")) || printable(value) != value || !utf8.ValidString(value) {
				t.Errorf("got header %q: %q, want it to travel anywhere", name, value)
			}
		}
		in, err := incoming(out)
		if err != nil || !maps.Equal(in, want) {
			t.Errorf("got %q by %q, error %v, want %q", in, out, err, want)
		}
	})
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{"": "", "é <&> %": "é <&> %", "a\nb": "a%0Ab", "\xff": "%FF", "\u0085": "%C2%85", "\ufffd": "%EF%BF%BD", "a\xe9\x00": "a%E9%00"} {
		if got := printable(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestParkedRecordsComeBackAsTheyWere(t *testing.T) {
	for _, record := range []broker.Record{
		{}, {Destination: "d", Body: []byte{}}, {Destination: "d", Body: []byte(strings.Repeat("\x00", 1000))},
		{Destination: "d", Key: "\xff", ID: "1", ContentType: "\x00", Attributes: map[string]string{"a": "\xfe", "\xfd": ""}, Headers: map[string]string{"h": "v"}, Body: []byte("\x00\xff")},
	} {
		text, err := encodeRecord(record)
		if err != nil || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Fatalf("got %q, error %v, want text", text, err)
		}
		if most := 2*len(record.Body) + 500; len(text) > most {
			t.Errorf("got %d bytes, want at most %d", len(text), most)
		}
		got, err := decodeRecord([]byte(text))
		if err != nil || got.Key != record.Key || got.ContentType != record.ContentType || string(got.Body) != string(record.Body) || (got.Body == nil) != (record.Body == nil) ||
			!maps.Equal(got.Attributes, record.Attributes) || !maps.Equal(got.Headers, record.Headers) {
			t.Errorf("got %+v, error %v, want %+v", got, err, record)
		}
	}
	for _, text := range []string{``, `7`, `{"body":7}`, `{"body":{}}`, `{"headers":[["a"]]}`} {
		if _, err := decodeRecord([]byte(text)); err == nil && text != `{"headers":[["a"]]}` {
			t.Errorf("%s: got no error, want one", text)
		}
	}
}

func TestDebezium(t *testing.T) {
	good := broker.Record{Destination: "outbox.event.order", Key: "7", Headers: map[string]string{"id": "i", "eventType": "order.placed", "tenant": "a"}, Body: []byte(`"{\"a\":1}"`)}
	mapped, err := debezium(good)
	if err != nil || mapped.Attributes["id"] != "i" || mapped.Attributes["type"] != "order.placed" || mapped.Attributes["source"] != "/debezium/outbox.event.order" ||
		mapped.Key != "7" || len(mapped.Headers) != 1 || string(mapped.Body) != `{"a":1}` {
		t.Errorf("got %+v, error %v, want the event", mapped, err)
	}
	if _, err := debezium(broker.Record{Headers: map[string]string{"id": "i"}, Body: []byte("{}")}); err == nil || !strings.Contains(err.Error(), "eventType") {
		t.Errorf("without a type: got %v, want an error", err)
	}
	for body, want := range map[string]string{`{"a":1}`: `{"a":1}`, `{"schema":{"type":"string"},"payload":"{\"a\":1}"}`: `{"a":1}`, `{"schema":{},"payload":{"a":1}}`: `{"schema":{},"payload":{"a":1}}`, `{"schema":"v2","payload":{"a":1}}`: `{"schema":"v2","payload":{"a":1}}`, `{"schema":1,"payload":2,"c":3}`: `{"schema":1,"payload":2,"c":3}`, `"text"`: `"text"`, ``: ``, `{`: `{`} {
		if got := string(unwrapped([]byte(body))); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}
