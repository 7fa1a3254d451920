package flow

import (
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// DeadlinePassed is why an expired message was poisoned.
const DeadlinePassed = "deadline passed"

// Deadline reads what outbox.DeliverBy has written: by when a run may start, and what becomes of the message
// after that. False means that there is none, or one that was edited and cannot be read.
func Deadline(headers map[string]string) (by time.Time, late string, ok bool) {
	text, ok := headers[store.DeliverByHeader]
	if !ok {
		return by, "", false
	}
	at, late, _ := strings.Cut(text, " ")
	by, err := time.Parse(time.RFC3339Nano, at)
	return by, late, err == nil
}
