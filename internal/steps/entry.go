package steps

import (
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// Entry is a step that has a result. It is stored as one line of JSON.
type Entry struct {
	Name       string    `json:"name"`
	Attempt    int       `json:"attempt"`
	StartedAt  time.Time `json:"at"`
	TookMicros int64     `json:"us"`
	Result     string    `json:"result"`        // as the registry's codec encoded it
	Nil        bool      `json:"nil,omitempty"` // the result is nil, which a codec may refuse to decode
}

// ErrUnreadable is returned for steps that are stored in another form.
var ErrUnreadable = errors.New("the message's stored steps cannot be read")

// Parse returns the steps of a stored text, in the order in which they ended.
func Parse(text string) ([]Entry, error) {
	var entries []Entry
	for line := range strings.Lines(text) {
		var e Entry
		if json.Unmarshal([]byte(line), &e) != nil || e.Name == "" { // its error could quote the result
			return entries, ErrUnreadable
		}
		entries = append(entries, e)
	}
	return entries, nil
}
