package nats

import (
	"maps"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// These tests are internal: they look at what is on the wire, which NATS shows to others.

func TestPlainHeadersTravelAsTheyAre(t *testing.T) {
	t.Parallel()
	m := message(broker.Record{
		Destination: "orders.placed", ID: "17", ContentType: "application/json", Key: "customer",
		Attributes: map[string]string{"id": "17", "subject": "50% \"ü\"", "partitionkey": "customer"},
		Headers:    map[string]string{"traceparent": "00-ab-cd-01", "Nats-Rollup": "all", "note": "a\r\nb"},
	}, "inbox.1")
	want := nats.Header{
		"Nats-Msg-Id": {"17"}, "Content-Type": {"application/json"}, "ce-id": {"17"}, "ce-partitionkey": {"customer"},
		"ce-subject": {"50%25%20%22%C3%BC%22"}, "traceparent": {"00-ab-cd-01"}, "asyncmonolith-h-Nats-Rollup": {"all"},
		"asyncmonolith-h-note": {"a%0D%0Ab"}, "asyncmonolith-tombstone": {"true"},
	}
	if !maps.EqualFunc(m.Header, want, func(a, b []string) bool { return strings.Join(a, "|") == strings.Join(b, "|") }) {
		t.Errorf("got %q, want %q", m.Header, want)
	}
}

func TestMessagesOfOthersAreRead(t *testing.T) {
	t.Parallel()
	got := record(&nats.Msg{Subject: "s", Data: []byte("x"), Header: nats.Header{
		"Ce-Type": {"Placed"}, "ce-subject": {"100% sure"}, "CE-Subject": {"another"}, "content-type": {"text/plain"}, "Two": {"a",
			"b"}, "Nats-Msg-Id": {"a%20b"},
	}})
	if got.Attributes["type"] != "Placed" || got.Attributes["subject"] != "100% sure" || got.ContentType != "text/plain" ||
		got.Headers["Two"] != "a, b" || got.ID != "a%20b" || len(got.Headers) != 1 {
		t.Errorf("got %+v", got)
	}
}

func FuzzWhatIsSentComesBack(f *testing.F) {
	f.Add("id", "type", "a\r\nb: c", "50%", "kéy", []byte("body"))
	f.Add("", "", "", "", "", []byte{})
	f.Fuzz(func(t *testing.T, id, contentType, name, value, key string, body []byte) {
		sent := broker.Record{
			Destination: "s", ID: id, ContentType: contentType, Key: key, Body: body,
			Attributes: map[string]string{"subject": value}, Headers: map[string]string{name: value},
		}
		m := message(sent, "")
		for name, values := range m.Header {
			if strings.ContainsAny(name+values[0], "\r\n") {
				t.Fatalf("header %q: %q ends early", name, values)
			}
		}
		got := record(m)
		if got.ID != id || got.ContentType != contentType || got.Key != key || string(got.Body) != string(body) ||
			!maps.Equal(got.Attributes, sent.Attributes) || !maps.Equal(got.Headers, sent.Headers) {
			t.Errorf("got %+v, want %+v", got, sent)
		}
	})
}
