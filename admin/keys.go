package admin

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// mostListed is the maximum length of lists without pages.
const mostListed = 1000

func checkLimit(n int) error {
	if n < 1 || n > mostListed {
		return fmt.Errorf("%w: limit %d: 1 to %d is allowed", bus.ErrInvalidOption, n, mostListed)
	}
	return nil
}

// BlockedKey is a key whose messages wait until a poisoned message is requeued or discarded: see
// bus.BlockKey.
type BlockedKey struct {
	Consumer string    `json:"consumer"`
	Key      string    `json:"key"`
	Poisoned int64     `json:"poisoned"` // id of the first message that blocks it, for poison.Store
	Since    time.Time `json:"since,omitzero"`
	Waiting  int64     `json:"waiting"` // messages of the key that wait; 10,000 means "or more"
}
