package store

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// stopsKept is how long a request and its answer are kept.
const stopsKept = time.Hour

// The outcomes of a request to stop a message.
const (
	StopCancelled = "cancelled" // it was removed without having been done
	StopTooLate   = "too_late"  // its run had another outcome
)

// AskToStop asks the owner of a claim to stop a message, unless a request to it is open. It deletes
// requests to other owners, those answered with StopTooLate, since the message is there again, and old
// ones.
func (s *OperationStore) AskToStop(ctx context.Context, db *bun.DB, message int64, owner string) error {
	err := txn.InTx(ctx, db, func(tx bun.Tx) error {
		err := s.names.Exec(ctx, tx, `DELETE FROM {stops} WHERE message_id = ? AND (owner <> ? OR outcome = ?) OR asked_at < ?`,
			message, owner, StopTooLate, bun.Safe(s.names.After(ctx, -stopsKept)))
		if err != nil {
			return err
		}
		return s.names.Exec(ctx, tx, `INSERT INTO {stops} (message_id, owner, asked_at) SELECT ?, ?, {now}{from nothing} WHERE NOT EXISTS (SELECT 1 FROM {stops} s WHERE s.message_id = ?)`,
			message, owner, message)
	})
	if dberr.ClassOf(err) == dberr.Refused { // another transaction has just asked
		return nil
	}
	return err
}

// StopRequests returns the messages that the owner is asked to stop and has not answered.
func (s *OperationStore) StopRequests(ctx context.Context, db bun.IDB, owner string) ([]int64, error) {
	return read[[]int64](ctx, s.tables, db, `SELECT message_id FROM {stops} WHERE owner = ? AND outcome IS NULL`, owner)
}

// answerStop records the outcome of a request, in the transaction that settles the message.
func (s *OperationStore) answerStop(ctx context.Context, tx bun.IDB, message int64, owner, outcome string) error {
	return s.names.Exec(ctx, tx, `UPDATE {stops} SET outcome = ? WHERE message_id = ? AND owner = ?`, outcome, message, owner)
}

// StopRequest is a request and its answer.
type StopRequest struct {
	Owner   string `bun:"owner"`
	Outcome string `bun:"outcome"` // empty while there is no answer
}

// StopAnswer returns the request for a message, or false if there is none.
func (s *OperationStore) StopAnswer(ctx context.Context, db bun.IDB, message int64) (StopRequest, bool, error) {
	return first[StopRequest](ctx, s.tables, db, `SELECT owner, outcome FROM {stops} WHERE message_id = ?`, message)
}

// Stopped records that a message was cancelled, for others that have asked to stop it.
func (s *OperationStore) Stopped(ctx context.Context, db bun.IDB, message int64) error {
	return s.exec(ctx, db, `UPDATE {stops} SET outcome = ? WHERE message_id = ?`, StopCancelled, message)
}

// Holder returns the owner of the claim of a message, which is empty if it is not claimed. found is
// false if there is no such message.
func (s *OperationStore) Holder(ctx context.Context, db bun.IDB, message int64) (owner string, found bool, err error) {
	row, found, err := s.pending.Get(ctx, db, message, false)
	if row.ClaimID == 0 {
		return "", found, err
	}
	return row.Owner, found, err
}
