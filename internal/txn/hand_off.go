package txn

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// HandOff collects the messages of a transaction that a processor of this process may run as soon as
// it commits. It is safe for concurrent use.
type HandOff struct {
	// Planned means that the transaction is of ClaimStore.BeginProducing, on a connection that has
	// planned statements.
	Planned bool

	tx          *sql.Tx
	receiver    handoff.Receiver
	mu          sync.Mutex
	written     []handoff.Message
	reservation handoff.Reservation // while the claim is written and committed
}

// HandOffOf returns what collects the messages of a transaction, or nil: a context does not tell
// which of several transactions a function uses.
func HandOffOf(ctx context.Context, db bun.IDB) *HandOff {
	tx, isTx := db.(bun.Tx)
	if pending, ok := ctx.Value(wakeupsKey{}).(*Wakeups); ok && isTx && pending.handOff != nil && pending.handOff.tx == tx.Tx {
		return pending.handOff
	}
	return nil
}

// HandOffTo has the messages of a transaction collected for a receiver. It is called before anything
// is written in it, and followed by [Wakeups.BeforeCommit], [Wakeups.Committed] and
// [Wakeups.Abandon].
func (w *Wakeups) HandOffTo(receiver handoff.Receiver, tx bun.Tx, planned bool) {
	w.handOff = &HandOff{Planned: planned, tx: tx.Tx, receiver: receiver}
}

// IDs returns ids for messages that may be handed off, and about the database's time. If it returns
// none, they go the ordinary way.
func (h *HandOff) IDs(n int) (ids handoff.IDs, now time.Time) { return h.receiver.IDs(n) }

// Refused reports that nothing was written under ids: their origin may be out of date.
func (h *HandOff) Refused(ids handoff.IDs) { h.receiver.Refused(ids) }

// Add notes messages that were written. All are plain: nothing but their consumers decides when they
// run.
func (h *HandOff) Add(messages ...handoff.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written = append(h.written, messages...)
}

// BeforeCommit claims messages that can run at once. It is called right before the commit, so that
// the room for them is kept for that long only, and a savepoint or a rollback inside the transaction
// is seen. An error is no reason not to commit: it may be that planned statements are lost.
func (w *Wakeups) BeforeCommit(ctx context.Context, tx bun.Tx) error {
	if w.handOff == nil {
		return nil
	}
	h := w.handOff
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.written) == 0 {
		return nil
	}
	reservation, rest := h.receiver.Reserve(h.written)
	if reservation == nil {
		return nil
	}
	h.reservation = reservation // before the claim: a query hook may panic
	claimed, err := reservation.Claim(ctx, tx, h.Planned)
	if !claimed {
		reservation.Cancel(false)
		h.reservation = nil
		return err
	}
	h.written = rest
	return nil
}

// Committed hands the claimed messages over, and announces the others with [Wakeups.Send].
func (w *Wakeups) Committed() {
	if w.handOff == nil {
		return
	}
	h := w.handOff
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reservation != nil {
		h.reservation.Commit()
		h.reservation = nil
	}
	for _, m := range h.written {
		w.add(wakeup.Wake{PayloadTypes: []string{m.PayloadType}})
	}
}

// Abandon gives back what is kept for a transaction that was not committed, or maybe was. It does
// nothing after [Wakeups.Committed].
func (w *Wakeups) Abandon() {
	if w.handOff == nil {
		return
	}
	h := w.handOff
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reservation != nil {
		h.reservation.Cancel(true)
		h.reservation = nil
	}
}
