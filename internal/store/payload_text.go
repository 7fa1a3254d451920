package store

import "encoding/json"

// PayloadText is a payload in JSON for people and their programs: unchanged if it is JSON itself,
// else as a string.
type PayloadText []byte

// MarshalJSON implements json.Marshaler.
func (p PayloadText) MarshalJSON() ([]byte, error) {
	if json.Valid(p) {
		return p, nil
	}
	return json.Marshal(string(p))
}
