package store

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// stopsKept is for how long a request is kept that nobody answers.
const stopsKept = time.Hour

// What comes of a request to stop a message.
const (
	StopCancelled = "cancelled" // it is gone without having been done
	StopTooLate   = "too_late"  // its run had an outcome of its own
)

// AskToStop asks the owner of a claim to end the run of a message in it, in place of an
// earlier request for that message, and forgets old requests.
func (s *Store) AskToStop(ctx context.Context, db *bun.DB, message int64, owner string) error {
	return txn.InTx(ctx, db, func(tx bun.Tx) error {
		if _, err := s.names.Query(ctx, tx, `DELETE FROM {stops} WHERE message_id = ? OR asked_at < ?`, message, bun.Safe(s.names.After(ctx, -stopsKept))).Exec(ctx); err != nil {
			return err
		}
		_, err := s.names.Query(ctx, tx, `INSERT INTO {stops} (message_id, owner, asked_at) VALUES (?, ?, {now})`, message, owner).Exec(ctx)
		return err
	})
}

// StopRequests lists the messages whose runs the owner is asked to end, and has not answered.
func (s *Store) StopRequests(ctx context.Context, db bun.IDB, owner string) ([]int64, error) {
	return read[[]int64](ctx, s, db, `SELECT message_id FROM {stops} WHERE owner = ? AND outcome IS NULL`, owner)
}

// answerStop says what came of a request, in the transaction that settles the message.
func (s *Store) answerStop(ctx context.Context, tx bun.IDB, message int64, owner, outcome string) error {
	_, err := s.names.Query(ctx, tx, `UPDATE {stops} SET outcome = ? WHERE message_id = ? AND owner = ?`, outcome, message, owner).Exec(ctx)
	return err
}

// StopRequest is a request and its answer.
type StopRequest struct {
	Owner   string `bun:"owner"`
	Outcome string `bun:"outcome"` // empty while there is none
}

// StopAnswer returns the request about a message. False means that there is none.
func (s *Store) StopAnswer(ctx context.Context, db bun.IDB, message int64) (StopRequest, bool, error) {
	return first[StopRequest](ctx, s, db, `SELECT owner, outcome FROM {stops} WHERE message_id = ?`, message)
}

// ForgetStop removes the request about a message.
func (s *Store) ForgetStop(ctx context.Context, db bun.IDB, message int64) error {
	return retry(ctx, db, func(db bun.IDB) error {
		_, err := s.names.Query(ctx, db, `DELETE FROM {stops} WHERE message_id = ?`, message).Exec(ctx)
		return err
	})
}

// Holder tells who has a message in a claim: nobody when it is empty. False means that there
// is no such message.
func (s *Store) Holder(ctx context.Context, db bun.IDB, message int64) (owner string, found bool, err error) {
	row, found, err := s.PendingMessage(ctx, db, message, false)
	if row.ClaimID == 0 {
		return "", found, err
	}
	return row.Owner, found, err
}
