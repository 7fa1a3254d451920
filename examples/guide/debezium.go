package guide

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// FromDebezium reads a record of Debezium's outbox event router. Give it to inbox.MapRecord. The
// event's id is in the header id, and its type in the header eventType, which the router must be
// configured to write.
func FromDebezium(r broker.Record) (broker.Record, error) {
	eventType := r.Headers["eventType"]
	switch {
	case eventType == "" && r.Body == nil: // the router writes a tombstone after a deleted row
		return broker.Record{}, nil // it is ignored
	case eventType == "":
		return r, errors.New("header eventType is missing")
	}
	r.ContentType = "application/json"
	r.Attributes = map[string]string{
		"specversion": "1.0", "id": r.Headers["id"], "type": eventType,
		"source": "/debezium/" + url.PathEscape(r.Destination),
	}
	r.Body = unwrap(r.Body)
	return r, nil
}

// unwrap returns the payload of a body, which a converter may have put beside its schema, or into a
// JSON string.
func unwrap(body []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) == nil && len(members) == 2 && isSchema(members["schema"]) && members["payload"] != nil {
		body = members["payload"]
	}
	var text string
	if strings.HasPrefix(string(body), `"`) && json.Unmarshal(body, &text) == nil && json.Valid([]byte(text)) {
		return []byte(text)
	}
	return body
}

// isSchema distinguishes a schema of Kafka Connect from a member of the application's: it is null,
// or an object with a type.
func isSchema(text json.RawMessage) bool {
	var schema struct {
		Type string `json:"type"`
	}
	return string(text) == "null" || strings.HasPrefix(string(text), "{") && json.Unmarshal(text, &schema) == nil && schema.Type != ""
}
