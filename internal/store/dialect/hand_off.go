package dialect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
)

// MostHandedOff is the maximum number of messages of a transaction that are handed off.
const MostHandedOff = 100

// HandOff is a claim that the transaction of a producer writes for a processor of its process.
type HandOff struct {
	Owner    string
	Lease    time.Duration
	Messages []int64
	Planned  bool // the transaction is of BeginProducing, on a connection that has planned statements
}

// Claim returns the id of the claim: the negative id of its first message. A message is handed off
// once at most, and the ids of other claims are positive.
func (h HandOff) Claim() int64 { return -h.Messages[0] }

// NoHandOff is the part of a dialect for databases without a hand-off of messages.
type NoHandOff struct{}

// HandsOff implements [Dialect].
func (NoHandOff) HandsOff() bool { return false }

var errNoHandOff = fmt.Errorf("hand-off of messages: %w", errors.ErrUnsupported)

// BeginProducing implements [Dialect].
func (NoHandOff) BeginProducing(context.Context, *bun.DB) (RunTx, error) {
	return RunTx{}, errNoHandOff
}

// HandOff implements [Dialect].
func (NoHandOff) HandOff(context.Context, bun.Tx, HandOff) (bool, error) { return false, errNoHandOff }

// InsertHandOff implements [Dialect].
func (NoHandOff) InsertHandOff(context.Context, *bun.DB, []NewMessage, handoff.IDs, HandOff) (bool, error) {
	return false, errNoHandOff
}

// InsertAs implements [Dialect].
func (NoHandOff) InsertAs(context.Context, bun.Tx, []NewMessage, handoff.IDs) (bool, error) {
	return false, errNoHandOff
}

// MessageIDs implements [Dialect].
func (NoHandOff) MessageIDs(context.Context, bun.IDB, int) (handoff.IDs, error) {
	return handoff.IDs{}, errNoHandOff
}
