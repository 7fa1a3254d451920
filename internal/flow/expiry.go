package flow

import (
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// DeadlinePassed is why an expired message was poisoned.
const DeadlinePassed = "deadline passed"

// Deadline reads the header of outbox.DeliverBy: by when a run may start, and what happens to the
// message after that. It returns false if there is none, or if it was edited and cannot be read.
func Deadline(headers map[string]string) (by time.Time, late string, ok bool) {
	text, ok := headers[store.DeliverByHeader]
	if !ok {
		return by, "", false
	}
	at, late, _ := strings.Cut(text, " ")
	by, err := time.Parse(time.RFC3339Nano, at)
	return by, late, err == nil
}
