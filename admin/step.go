package admin

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/steps"
)

// Step is a step of a message whose result is stored: see outbox.Step. The result itself is not shown.
type Step struct {
	Name      string        `json:"name"`
	Attempt   int           `json:"attempt"`             // the one that stored it, counted from 1
	StartedAt time.Time     `json:"started_at,omitzero"` // on the clock of the process that ran it
	Took      time.Duration `json:"took"`
	Bytes     int           `json:"bytes"` // size of the encoded result
}

// stepsOf returns what can be read of stored steps.
func stepsOf(text string) (shown []Step) {
	entries, _ := steps.Parse(text)
	for _, e := range entries {
		shown = append(shown, Step{e.Name, e.Attempt, e.StartedAt, time.Duration(e.TookMicros) * time.Microsecond, len(e.Result)})
	}
	return shown
}
