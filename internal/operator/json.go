package operator

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// MarshalJSON implements json.Marshaler. The embedded message's MarshalJSON would omit Hidden.
func (m Message) MarshalJSON() ([]byte, error) {
	return together(m.Message, struct {
		Hidden bool `json:"hidden,omitempty"`
	}{m.Hidden})
}

// MarshalJSON implements json.Marshaler. The embedded message's MarshalJSON would omit Hidden.
func (p PoisonedMessage) MarshalJSON() ([]byte, error) {
	return together(p.Message, struct {
		Hidden bool `json:"hidden,omitempty"`
	}{p.Hidden})
}

// MarshalJSON implements json.Marshaler. The embedded schedule's MarshalJSON would omit the other
// fields.
func (s Schedule) MarshalJSON() ([]byte, error) {
	return together(s.Schedule, struct {
		Next   []time.Time `json:"next,omitempty"`
		Hidden bool        `json:"hidden,omitempty"`
	}{store.Each(s.Next, time.Time.UTC), s.Hidden})
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
