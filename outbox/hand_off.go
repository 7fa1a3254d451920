package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// fate is what became of rows that may be handed off.
type fate int

const (
	unwritten fate = iota
	writtenOnly
	handedOff // or claimed, or announced, once their transaction commits
)

// insert writes the rows and returns how many there are of each message. announce means that the
// processors of this process do not know of them yet.
func (p *Producer) insert(
	ctx context.Context, s *store.Store, db bun.IDB, rows []store.NewMessage,
) (written map[uuid.UUID]int, announce bool, err error) {
	outcome := unwritten
	if store.HandsOff(ctx, rows) {
		if pool, ok := db.(*bun.DB); ok {
			outcome, err = p.insertClaimed(ctx, pool, rows)
		} else if h := txn.HandOffOf(ctx, db); h != nil {
			outcome, err = insertToHandOff(ctx, s, db.(bun.Tx), rows, h)
		}
	}
	switch {
	case err != nil:
		return nil, false, err
	case outcome == unwritten:
		written, err = writeAll(ctx, s, db, rows)
		return written, true, err
	}
	written = make(map[uuid.UUID]int, len(rows))
	for _, row := range rows {
		written[row.MessageID]++
	}
	return written, outcome == writtenOnly, nil
}

// insertToHandOff writes rows in a transaction that may hand them off when it commits.
func insertToHandOff(ctx context.Context, s *store.Store, tx bun.Tx, rows []store.NewMessage, h *txn.HandOff) (fate, error) {
	ids, now := h.IDs(len(rows))
	if ids.IDs == nil {
		return unwritten, nil
	}
	ok, err := s.Outbox.InsertAs(ctx, tx, rows, ids, h.Planned)
	switch {
	case err != nil:
		return unwritten, err
	case !ok:
		h.Refused(ids)
		return unwritten, nil
	}
	h.Add(messagesOf(rows, ids, now)...)
	return handedOff, nil
}

// insertClaimed writes rows with their claim in one statement, if a processor of this process has room
// for all.
func (p *Producer) insertClaimed(ctx context.Context, pool *bun.DB, rows []store.NewMessage) (fate, error) {
	receiver := access.HandOffs(p.registry).Of(pool)
	if receiver == nil {
		return unwritten, nil
	}
	ids, now := receiver.IDs(len(rows))
	if ids.IDs == nil {
		return unwritten, nil
	}
	r, rest := receiver.Reserve(messagesOf(rows, ids, now))
	if r == nil {
		return unwritten, nil
	}
	if len(rest) > 0 {
		r.Cancel(false)
		return unwritten, nil
	}
	over := false
	defer func() {
		if !over { // a query hook of the application has panicked
			r.Cancel(true)
		}
	}()
	claimed, err := r.Insert(ctx, ids.Origin)
	over = true
	switch class := dberr.ClassOf(err); {
	case claimed:
		r.Commit()
		return handedOff, nil
	case err == nil:
		r.Cancel(false)
		return writtenOnly, nil
	case ctx.Err() != nil, class.Outage(), class == dberr.Timeout: // it may be written
		r.Cancel(true)
		return unwritten, err
	default: // without the claim it fails with its own error, or succeeds
		r.Cancel(false)
		return unwritten, nil
	}
}

func messagesOf(rows []store.NewMessage, ids handoff.IDs, now time.Time) []handoff.Message {
	messages := make([]handoff.Message, len(rows))
	for i, row := range rows {
		messages[i] = handoff.Message{
			ID: ids.IDs[i], MessageID: row.MessageID, ConsumerType: row.ConsumerType, PayloadType: row.PayloadType,
			Payload: row.Payload, Headers: row.Headers, CreatedAt: now,
		}
	}
	return messages
}
