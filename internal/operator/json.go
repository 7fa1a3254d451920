package operator

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// MarshalJSON implements json.Marshaler. A payload that is JSON is embedded as it is, any
// other as a string. It is for output only: unmarshalling the result does not restore Payload.
func (m Message) MarshalJSON() ([]byte, error) {
	payload := m.Payload
	m.Payload = nil
	return together(m.Message, struct {
		Payload store.PayloadText `json:"payload,omitempty"`
		Hidden  bool              `json:"hidden,omitempty"`
	}{payload, m.Hidden})
}

// MarshalJSON implements json.Marshaler. See [Message.MarshalJSON].
func (p PoisonedMessage) MarshalJSON() ([]byte, error) {
	payload := p.Payload
	p.Payload = nil
	return together(p.Message, struct {
		Payload store.PayloadText `json:"payload,omitempty"`
		Hidden  bool              `json:"hidden,omitempty"`
	}{payload, p.Hidden})
}

// MarshalJSON implements json.Marshaler. See [Message.MarshalJSON].
func (s Schedule) MarshalJSON() ([]byte, error) {
	payload := s.Payload
	s.Payload = nil
	return together(s.Schedule, struct {
		Payload store.PayloadText `json:"payload,omitempty"`
		Next    []time.Time       `json:"next,omitempty"`
		Hidden  bool              `json:"hidden,omitempty"`
	}{payload, store.Each(s.Next, time.Time.UTC), s.Hidden})
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
