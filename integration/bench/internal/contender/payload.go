package contender

import (
	"fmt"
	"strings"
	"time"
)

// Signup is the payload of every measurement, for every contender.
type Signup struct {
	UserID int64     `json:"user_id"`
	Email  string    `json:"email"`
	At     time.Time `json:"at"`
	// Padding makes the payload as large as a measurement wants it.
	Padding string `json:"padding,omitempty"`
}

// plainSize is about the size of a Signup in JSON without padding.
const plainSize = 80

// PayloadType names the payload for AsyncMonolith.
func (Signup) PayloadType() string { return "user.signed_up" }

// Kind names the payload for River.
func (Signup) Kind() string { return "user.signed_up" }

// Signups returns n payloads with ids from first on, each of about size bytes
// in JSON; a size of 0 means no padding.
func Signups(first, n, size int) []Signup {
	padding := ""
	if missing := size - plainSize - len(`,"padding":""`); missing > 0 {
		padding = strings.Repeat("x", missing)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	batch := make([]Signup, n)
	for i := range batch {
		id := first + i
		batch[i] = Signup{UserID: int64(id), Email: fmt.Sprintf("user%d@example.com", id), At: at, Padding: padding}
	}
	return batch
}
