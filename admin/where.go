package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// mostInBatch is the most messages that one call changes of those that match.
const mostInBatch = 10_000

// Chunk says which messages [Client.CancelWhere] and [Client.RescheduleWhere] change next: of those that
// match the first ones, in the order of their ids.
type Chunk struct {
	// Filter says which messages; the zero value means all.
	Filter Filter
	// After is the id behind which they begin: [ChunkResult.Last] of the batch before, or 0.
	After int64
	// UpTo is the last id that may be changed. What is produced or requeued later has greater ids.
	// 0 is no bound.
	UpTo int64
	// Limit is the most messages to change: 1 to 10,000. Each 500 are a transaction, unless the caller
	// has one.
	Limit int
}

// ChunkResult is what became of a chunk. None of its messages is missing to begin with: what is in
// Missing was consumed meanwhile.
type ChunkResult struct {
	Result
	// Last is how far it has come: all messages that match, up to this id, were changed, or are in
	// Running or Missing. It may be further than the last of these.
	Last int64 `json:"last"`
	// More is false once there is nothing more to look at.
	More bool `json:"more"`
}

// CancelWhere is [Client.Cancel] for the next messages that match a filter. Call it until nothing more
// is to come, with [ChunkResult.Last] as the next Batch.After. It looks at 50,000 messages
// at most, so that a batch may change nothing, and have more behind it. What matches when it looks is
// changed, even if it would not match an instant later.
//
// On an error it returns what is done, and Batch.After as Last: the batch can be repeated. A limit or an id
// that is not allowed is bus.ErrInvalidOption; all else is as Cancel has it.
func (a *Client) CancelWhere(ctx context.Context, db bun.IDB, b Chunk) (ChunkResult, error) {
	return a.changeWhere(ctx, db, "cancel", store.PendingChange{Cancel: true}, b)
}

// RescheduleWhere is [Client.Reschedule] for the next messages that match a filter, batch by batch like
// [Client.CancelWhere].
func (a *Client) RescheduleWhere(ctx context.Context, db bun.IDB, at time.Time, b Chunk) (ChunkResult, error) {
	if err := checkDue(at); err != nil {
		return ChunkResult{Last: b.After}, err
	}
	return a.changeWhere(ctx, db, "reschedule", store.PendingChange{AvailableAt: at}, b)
}

func (a *Client) changeWhere(ctx context.Context, db bun.IDB, what string, c store.PendingChange, b Chunk) (ChunkResult, error) {
	result := ChunkResult{Last: b.After, More: true}
	st, db, err := a.stores.In(ctx, db, errNotMade)
	if err = errors.Join(err, b.Filter.check()); err == nil && (b.Limit < 1 || b.Limit > mostInBatch || b.After < 0 || b.UpTo < 0) {
		err = fmt.Errorf("batch of %d after %d up to %d: %w: 1 to %d messages are allowed, and ids of 0 or more", b.Limit, b.After, b.UpTo, bus.ErrInvalidOption, mostInBatch)
	}
	if err != nil {
		return result, dberr.Wrap(err, "admin: %s where", what)
	}
	ids, last, more, err := st.Matching(ctx, db, b.Filter.rows(), b.After, b.UpTo, b.Limit)
	if err != nil {
		return result, dberr.Wrap(err, "admin: %s where", what)
	}
	if len(ids) > 0 {
		if result.Result, err = a.change(ctx, db, what+" where", c, ids); err != nil {
			return result, err
		}
	}
	result.Last, result.More = last, more
	return result, nil
}

// Preview is what batches of a filter would change.
type Preview struct {
	// UpTo is the last id there is: the UpTo of a [Chunk]. It is 0 when no message is pending.
	UpTo int64 `json:"up_to"`
	// Messages are how many match; More is true if there may be more.
	Messages int  `json:"messages"`
	More     bool `json:"more,omitempty"`
	// Consumers are those of these messages, as they are stored, in the order of their names.
	Consumers []string `json:"consumers,omitempty"`
}

// Preview counts the messages that match, until it has so many, before all of them are changed. What is
// rare costs a look at the whole table. It changes nothing.
func (a *Client) Preview(ctx context.Context, db bun.IDB, filter Filter, most int) (p Preview, err error) {
	st, db, err := a.stores.Of(db, errNotMade)
	if err = errors.Join(err, filter.check()); err == nil && most < 1 {
		err = fmt.Errorf("of up to %d: %w: 1 or more is allowed", most, bus.ErrInvalidOption)
	}
	if err == nil {
		p.UpTo, err = st.LastPending(ctx, db)
	}
	after := int64(0)
	for more := p.UpTo > 0; more && err == nil && !p.More; {
		var ids []int64
		ids, after, more, err = st.Matching(ctx, db, filter.rows(), after, p.UpTo, most-p.Messages)
		p.Messages += len(ids)
		p.More = more && p.Messages == most
		if err == nil {
			var names []string
			names, err = st.ConsumersOf(ctx, db, ids)
			p.Consumers = append(p.Consumers, names...)
		}
	}
	slices.Sort(p.Consumers)
	p.Consumers = slices.Compact(p.Consumers)
	if err != nil {
		return Preview{}, dberr.Wrap(err, "admin: preview")
	}
	return p, nil
}
