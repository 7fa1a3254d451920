package cloudevents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"strings"
	"unicode/utf8"
)

const (
	// SpecVersion is the attribute specversion.
	SpecVersion = "1.0"
	// JSON is the media type of data unless an event says another.
	JSON = "application/json"
	// Structured is the media type of an event in one JSON object.
	Structured = "application/cloudevents+json"
)

// Event is one of CloudEvents 1.0.
type Event struct {
	Attributes  map[string]string // but the type of the data
	ContentType string            // of the data; empty stands for JSON
	Data        []byte            // nil if there is none
}

// Set sets an attribute, unless the value is empty.
func (e *Event) Set(name, value string) {
	if value != "" {
		e.Attributes[name] = value
	}
}

// JSON writes all of an event as a JSON object.
func (e *Event) JSON() ([]byte, error) {
	fields := make(map[string]string, len(e.Attributes)+1)
	maps.Copy(fields, e.Attributes)
	if e.ContentType != "" {
		fields["datacontenttype"] = e.ContentType
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode an event: %w", err)
	}
	if e.Data != nil {
		member, err := e.member()
		if err != nil {
			return nil, err
		}
		body = append(append(body[:len(body)-1], member...), '}')
	}
	return body, nil
}

// member is what the data is in the object: a value if it is JSON, a string if it is text, and
// else base64.
func (e *Event) member() ([]byte, error) {
	switch {
	case isJSON(e.ContentType):
		if !json.Valid(e.Data) || !utf8.Valid(e.Data) {
			return nil, fmt.Errorf("encode an event: its data of type %q is no JSON", e.ContentType)
		}
		return append([]byte(`,"data":`), e.Data...), nil
	case utf8.Valid(e.Data):
		text, err := json.Marshal(string(e.Data))
		return append([]byte(`,"data":`), text...), err
	}
	return fmt.Appendf(nil, `,"data_base64":%q`, base64.StdEncoding.EncodeToString(e.Data)), nil
}

// isJSON reports whether data of a media type is JSON. No type at all stands for JSON.
func isJSON(mediaType string) bool {
	if mediaType == "" {
		return true
	}
	plain, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		plain, _, _ = strings.Cut(mediaType, ";")
		plain = strings.ToLower(strings.TrimSpace(plain))
	}
	return plain == JSON || plain == "text/json" || strings.HasSuffix(plain, "+json")
}

// Check reports what every event must have, and this one has not.
func (e *Event) Check() error {
	if version := e.Attributes["specversion"]; version != SpecVersion {
		return fmt.Errorf("specversion %q: %s is allowed", Short(version), SpecVersion)
	}
	for _, name := range []string{"id", "source", "type"} {
		if e.Attributes[name] == "" {
			return fmt.Errorf("attribute %s is missing", name)
		}
	}
	for name, value := range e.Attributes {
		if !isAttribute(name) {
			return fmt.Errorf("attribute %q: lower-case letters and digits are allowed in a name", Short(name))
		}
		if !utf8.ValidString(value) {
			return fmt.Errorf("attribute %s is no UTF-8", name)
		}
	}
	return nil
}

func isAttribute(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) < 0
}

// Short cuts what came from somebody else, for an error.
func Short(text string) string { return strings.ToValidUTF8(text[:min(len(text), 64)], "") }

// TypeOf is the type of an event in one JSON object, of which the rest may be wrong; empty if there is none.
func TypeOf(body []byte) string {
	var members map[string]json.RawMessage
	var name string
	if json.Unmarshal(body, &members) != nil || json.Unmarshal(members["type"], &name) != nil {
		return ""
	}
	return name
}

// Parse reads an event that [Event.JSON], or somebody else, has written.
func Parse(body []byte) (Event, error) {
	var members map[string]json.RawMessage
	if !utf8.Valid(body) {
		return Event{}, errors.New("the body is no UTF-8")
	}
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return Event{}, errors.New("the body is no JSON object")
	}
	data, hasData := members["data"]
	encoded, hasEncoded := members["data_base64"]
	delete(members, "data")
	delete(members, "data_base64")
	e := Event{Attributes: make(map[string]string, len(members))}
	for name, value := range members {
		text, err := attributeText(value)
		if err != nil {
			return Event{}, fmt.Errorf("attribute %q: %w", Short(name), err)
		}
		if text != nil {
			e.Attributes[name] = *text
		}
	}
	e.ContentType = e.Attributes["datacontenttype"]
	delete(e.Attributes, "datacontenttype")
	null := []byte("null")
	hasData, hasEncoded = hasData && !bytes.Equal(data, null), hasEncoded && !bytes.Equal(encoded, null)
	switch {
	case hasData && hasEncoded:
		return Event{}, errors.New("the event has both data and data_base64: one of them is allowed")
	case hasEncoded:
		if json.Unmarshal(encoded, &e.Data) != nil {
			return Event{}, errors.New("data_base64 is no base64")
		}
	case hasData:
		e.Data = data
		var text string
		if !isJSON(e.ContentType) && json.Unmarshal(data, &text) == nil {
			e.Data = []byte(text)
		}
	}
	return e, nil
}

// attributeText is the value of an attribute as text, and nil for a null, which is none.
func attributeText(value json.RawMessage) (*string, error) {
	var text string
	switch value[0] {
	case 'n':
		return nil, nil
	case '"':
		if err := json.Unmarshal(value, &text); err != nil {
			return nil, errors.New("the value is not a string")
		}
	case '{', '[':
		return nil, errors.New("a string, a number or a boolean is allowed")
	default:
		text = string(value)
	}
	return &text, nil
}
