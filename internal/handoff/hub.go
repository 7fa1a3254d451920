package handoff

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
)

// Message is a message as a transaction has written it: plain, due, and without a failed attempt.
// CreatedAt is about when the row was created.
type Message struct {
	ID                        int64
	MessageID                 uuid.UUID
	ConsumerType, PayloadType string
	Payload, Headers          string
	CreatedAt                 time.Time
}

// IDs are reserved ids of messages.
type IDs struct {
	IDs    []int64
	Origin string // the table of the server that has reserved them: they are not used for another
}

// Receiver is a running processor. Its methods are safe for concurrent use.
type Receiver interface {
	// IDs returns ids for n messages and about the database's time, or none at the moment.
	IDs(n int) (ids IDs, now time.Time)
	// Refused reports that nothing was written under ids: their origin may be out of date.
	Refused(ids IDs)
	// Reserve keeps room for those of the messages that may run here now, and returns the others. The
	// reservation is nil if there is room for none.
	Reserve(messages []Message) (r Reservation, rest []Message)
}

// Reservation is room for messages of one transaction. Exactly one of Commit and Cancel ends it.
type Reservation interface {
	// Claim writes the claim of the messages in their transaction. If it returns false, the
	// transaction is as before, and the reservation is to be cancelled. planned means that the
	// connection has planned the statement. The error is no reason not to commit.
	Claim(ctx context.Context, tx bun.Tx, planned bool) (bool, error)
	// Insert writes the messages with their claim, in one statement of its own. origin is that of their
	// ids. If claimed is false and there is no error, they are written and wait for a claim.
	Insert(ctx context.Context, origin string) (claimed bool, err error)
	// Commit hands the messages over after the commit.
	Commit()
	// Cancel gives the room back. unsure means that the claim may have been committed.
	Cancel(unsure bool)
}

// Hub holds the receivers of a registry's processors. It is safe for concurrent use.
type Hub struct {
	mu        sync.Mutex
	receivers map[Receiver]*sql.DB
}

// Add has a receiver get messages that are written through a pool, until remove is called.
func (h *Hub) Add(pool *bun.DB, r Receiver) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.receivers == nil {
		h.receivers = make(map[Receiver]*sql.DB)
	}
	h.receivers[r] = pool.DB
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.receivers, r)
	}
}

// Of returns a receiver of a pool, or nil.
func (h *Hub) Of(pool *bun.DB) Receiver {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, db := range h.receivers {
		if db == pool.DB {
			return r
		}
	}
	return nil
}
