package inbox

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// parkedType is the payload type of parked records.
const parkedType = "asyncmonolith.record"

// parkedRecord is the stored form of a record. Binary content is in base64.
type parkedRecord struct {
	Destination parkedText      `json:"destination"`
	Key         parkedText      `json:"key,omitzero"`
	ID          parkedText      `json:"id,omitzero"`
	ContentType parkedText      `json:"content_type,omitzero"`
	Attributes  [][2]parkedText `json:"attributes,omitempty"`
	Headers     [][2]parkedText `json:"headers,omitempty"`
	Body        *parkedText     `json:"body,omitempty"`
}

// parkedText is a string, or an object with base64 if it is binary or JSON would make it much
// longer.
type parkedText string

// MarshalJSON implements json.Marshaler.
func (t parkedText) MarshalJSON() ([]byte, error) {
	encoded := map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(t))}
	if !utf8.ValidString(string(t)) {
		return json.Marshal(encoded)
	}
	// JSON may be six times as long as the text.
	text, err := json.Marshal(string(t))
	if err == nil && len(text) > 2*len(t)+len(`""`) {
		return json.Marshal(encoded)
	}
	return text, err
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *parkedText) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, (*string)(t))
	}
	var encoded struct{ Base64 *[]byte }
	if err := json.Unmarshal(text, &encoded); err != nil || encoded.Base64 == nil {
		return errors.New(`a string, or an object with "base64", is allowed`)
	}
	*t = parkedText(*encoded.Base64)
	return nil
}

func encodeRecord(r broker.Record) (string, error) {
	p := parkedRecord{
		Destination: parkedText(r.Destination), Key: parkedText(r.Key), ID: parkedText(r.ID), ContentType: parkedText(r.ContentType),
		Attributes: pairs(r.Attributes), Headers: pairs(r.Headers),
	}
	if r.Body != nil {
		body := parkedText(r.Body)
		p.Body = &body
	}
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("inbox: encode a record: %w", err)
	}
	return string(text), nil
}

// decodeRecord decodes a stored record, which an operator may have edited.
func decodeRecord(text []byte) (broker.Record, error) {
	var p parkedRecord
	if err := json.Unmarshal(text, &p); err != nil {
		return broker.Record{}, errors.New("inbox: the payload is not a parked record")
	}
	r := broker.Record{Destination: string(p.Destination), Key: string(p.Key), ID: string(p.ID), ContentType: string(p.ContentType),
		Attributes: fields(p.Attributes), Headers: fields(p.Headers)}
	if p.Body != nil {
		r.Body = []byte(*p.Body)
	}
	return r, nil
}

func pairs(fields map[string]string) (list [][2]parkedText) {
	for name, value := range fields {
		list = append(list, [2]parkedText{parkedText(name), parkedText(value)})
	}
	return list
}

func fields(list [][2]parkedText) map[string]string {
	if len(list) == 0 {
		return nil
	}
	fields := make(map[string]string, len(list))
	for _, pair := range list {
		fields[string(pair[0])] = string(pair[1])
	}
	return fields
}
