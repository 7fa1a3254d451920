package operator

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// hidden is the field Hidden of several types.
type hidden struct {
	Hidden bool `json:"hidden,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (m Message) MarshalJSON() ([]byte, error) { return together(m.Message, hidden{m.Hidden}) }

// MarshalJSON implements json.Marshaler.
func (p PoisonedMessage) MarshalJSON() ([]byte, error) { return together(p.Message, hidden{p.Hidden}) }

// MarshalJSON implements json.Marshaler.
func (m ConsumedMessage) MarshalJSON() ([]byte, error) {
	return together(m.ConsumedMessage, struct {
		PayloadBytes int `json:"payload_bytes,omitempty"`
		hidden
	}{m.PayloadBytes, hidden{m.Hidden}})
}

// MarshalJSON implements json.Marshaler.
func (s Schedule) MarshalJSON() ([]byte, error) {
	return together(s.Schedule, struct {
		Next []time.Time `json:"next,omitempty"`
		hidden
	}{store.Each(s.Next, time.Time.UTC), hidden{s.Hidden}})
}

// together merges the fields of two objects.
func together(one, other any) ([]byte, error) {
	first, err := json.Marshal(one)
	if err != nil {
		return nil, err
	}
	second, err := json.Marshal(other)
	if err != nil || len(second) <= len("{}") {
		return first, err
	}
	return bytes.Join([][]byte{bytes.TrimSuffix(first, []byte("}")), second[1:]}, []byte(",")), nil
}
