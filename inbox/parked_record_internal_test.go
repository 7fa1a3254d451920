package inbox

import (
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

func TestParkedRecordsComeBackAsTheyWere(t *testing.T) {
	for _, record := range []broker.Record{
		{}, {Destination: "d", Body: []byte{}}, {Destination: "d", Body: []byte(strings.Repeat("\x00", 1000))},
		{Destination: "d", Key: "\xff", ID: "1", ContentType: "\x00", Attributes: map[string]string{"a": "\xfe", "\xfd": ""},
			Headers: map[string]string{"h": "v"}, Body: []byte("\x00\xff")},
	} {
		text, err := encodeRecord(record)
		if err != nil || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Fatalf("got %q, error %v, want text", text, err)
		}
		if most := 2*len(record.Body) + 500; len(text) > most {
			t.Errorf("got %d bytes, want at most %d", len(text), most)
		}
		got, err := decodeRecord([]byte(text))
		if err != nil || got.Key != record.Key || got.ContentType != record.ContentType || string(got.Body) != string(record.Body) ||
			(got.Body == nil) != (record.Body == nil) ||
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
