package sdkevents_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/asyncmonolith/asyncmonolith-go/integration/broker/sdkevents"
	"github.com/asyncmonolith/asyncmonolith-go/internal/cloudevents"
)

// contentTypes are those of data that the fuzz targets choose among. What ends in +json is not
// among them: to the SDK it is no JSON, other than the format says.
func contentTypes() []string {
	return []string{"application/json", "text/plain", "application/octet-stream", "text/json", "text/xml; charset=utf-8"}
}

func seeds(f *testing.F) {
	for i, data := range []string{`{"id":"1"}`, `"text"`, `plain <text> "quoted"`, "\xff\x00", `{"a": [1, 2.50, null, "é\u0000"]}`} {
		f.Add("1", "/shop/orders", "order.placed", "customer:1", []byte(data), uint8(i))
		f.Add("é \"' <&>", "https://shop.example/o?a=b", "a b", "ключ", []byte(data), uint8(0))
	}
}

// FuzzOurEventsAreReadBySDK: what this library writes, the SDK of CloudEvents reads.
func FuzzOurEventsAreReadBySDK(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, id, source, kind, key string, data []byte, n uint8) {
		contentType := contentTypes()[int(n)%len(contentTypes())]
		if !sdkevents.Allowed(id, source, kind, key) || !sdkevents.IsURI(source) {
			return
		}
		e := cloudevents.Event{ContentType: contentType, Data: data, Attributes: map[string]string{
			"specversion": "1.0", "id": id, "source": source, "type": kind, "partitionkey": key}}
		body, err := e.JSON()
		if err != nil {
			if json.Valid(data) && utf8.Valid(data) {
				t.Fatalf("got %v, want it written", err)
			}
			return
		}
		var read sdk.Event
		if err := json.Unmarshal(body, &read); err != nil {
			t.Fatalf("the SDK: got %v for %s, want it read", err, body)
		}
		if read.ID() != id || read.Source() != source || read.Type() != kind || read.Extensions()["partitionkey"] != key ||
			read.DataContentType() != contentType {
			t.Errorf("the SDK: got %s of %s, want the same attributes", read, body)
		}
		if !same(read.Data(), data, contentType) {
			t.Errorf("the SDK: got data %q of %s, want %q", read.Data(), body, data)
		}
		ours(t, body, e)
	})
}

// FuzzEventsOfSDKAreRead: what the SDK writes, this library reads.
func FuzzEventsOfSDKAreRead(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, id, source, kind, key string, data []byte, n uint8) {
		contentType := contentTypes()[int(n)%len(contentTypes())]
		if !sdkevents.Allowed(id, source, kind, key) || !sdkevents.IsURI(source) {
			return
		}
		e := sdk.New()
		e.SetID(id)
		e.SetSource(source)
		e.SetType(kind)
		e.SetExtension("partitionkey", key)
		if err := e.SetData(contentType, data); err != nil {
			return
		}
		if json.Valid(data) && utf8.Valid(data) && n%2 == 0 {
			e.DataBase64 = false
		}
		if e.Validate() != nil {
			return
		}
		body, err := json.Marshal(e)
		if err != nil {
			return
		}
		ours(t, body, cloudevents.Event{ContentType: contentType, Data: data, Attributes: map[string]string{
			"specversion": "1.0", "id": id, "source": source, "type": kind, "partitionkey": key}})
	})
}

// ours reads an event with this library.
func ours(t *testing.T, body []byte, want cloudevents.Event) {
	t.Helper()
	got, err := cloudevents.Parse(body)
	if err == nil {
		err = got.Check()
	}
	if err != nil {
		t.Fatalf("got %v for %s, want it read", err, body)
	}
	if len(got.Attributes) != len(want.Attributes) || got.ContentType != want.ContentType {
		t.Errorf("got %q %q of %s, want %q %q", got.Attributes, got.ContentType, body, want.Attributes, want.ContentType)
	}
	for name, value := range want.Attributes {
		if got.Attributes[name] != value {
			t.Errorf("attribute %s: got %q of %s, want %q", name, got.Attributes[name], body, value)
		}
	}
	if !same(got.Data, want.Data, want.ContentType) {
		t.Errorf("got data %q of %s, want %q", got.Data, body, want.Data)
	}
}

// same compares data; of JSON the spaces do not matter.
func same(got, want []byte, contentType string) bool {
	if bytes.Equal(got, want) {
		return true
	}
	var a, b bytes.Buffer
	return (contentType == "application/json" || contentType == "text/json") && json.Compact(&a, got) == nil &&
		json.Compact(&b, want) == nil && bytes.Equal(a.Bytes(), b.Bytes())
}

// FuzzParse reads anything without a panic, and what it and the SDK take they take for the same.
func FuzzParse(f *testing.F) {
	for _, body := range []string{``, `null`, `{}`, `[]`,
		`{"specversion":"1.0","id":"1","source":"/","type":"t","data":null,"n":1,"b":true,"x":null}`,
		`{"specversion":"1.0","id":"1","source":"/","type":"t","datacontenttype":"text/plain","data":"a"}`,
		`{"specversion":"1.0","id":"1","source":"/","type":"t","data_base64":"AA=="}`, `{"specversion":"1.0","id":{},"source":"/","type":"t"}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := cloudevents.Parse(body)
		if err == nil {
			err = got.Check()
		}
		if err != nil {
			return
		}
		var read sdk.Event
		if !json.Valid(body) || json.Unmarshal(body, &read) != nil || read.Validate() != nil {
			return
		}
		if got.Attributes["id"] != read.ID() || got.Attributes["type"] != read.Type() {
			t.Errorf("got id %q and type %q of %q, want %q and %q", got.Attributes["id"], got.Attributes["type"], body, read.ID(), read.Type())
		}
	})
}
