package store

import (
	"encoding/json"
)

// Lists are passed to databases without array parameters as JSON.

// PayloadText is a payload in JSON that people and their programs read: as it is when it
// is JSON itself, else as a string.
type PayloadText []byte

// MarshalJSON implements json.Marshaler.
func (p PayloadText) MarshalJSON() ([]byte, error) {
	if json.Valid(p) {
		return p, nil
	}
	return json.Marshal(string(p))
}

// Headers reads headers as they are stored. Only the library writes them; should
// they be unreadable all the same, that is no reason to withhold a message.
func Headers(text []byte) map[string]string {
	var headers map[string]string
	if len(text) > 0 {
		_ = json.Unmarshal(text, &headers)
	}
	return headers
}
