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

// mostInBatch is the maximum number of messages changed by one call.
const mostInBatch = 10_000

// Chunk selects the messages that [Client.CancelWhere] and [Client.RescheduleWhere] change next:
// the first that match, in order of their ids.
type Chunk struct {
	// Filter selects the messages; the zero value matches all.
	Filter Filter
	// After excludes ids up to this one: [ChunkResult.Last] of the previous chunk, or 0.
	After int64
	// UpTo is the last id that may be changed; 0 is no bound. Messages produced or requeued later
	// have greater ids.
	UpTo int64
	// Limit is the maximum number of messages to change: 1 to 10,000. Each 500 use one transaction,
	// unless db is a transaction.
	Limit int
}

// ChunkResult is the outcome of a chunk. Messages in Missing were consumed meanwhile.
type ChunkResult struct {
	Result
	// Last is how far the chunk got: each match up to this id was changed, or is in Running or
	// Missing. It may be greater than the id of the last match.
	Last int64 `json:"last"`
	// More is false once the scan is complete.
	More bool `json:"more"`
}

// CancelWhere is [Client.Cancel] for the next messages that match a filter. Repeat it with
// [ChunkResult.Last] as the next [Chunk.After] while [ChunkResult.More] is true. It scans at most
// 50,000 messages, so a chunk may change none although more follow. A message that matches during
// the scan is changed, even if it stops matching meanwhile.
//
// On an error it returns what is done, with Chunk.After as Last, so the chunk can be repeated.
// An invalid limit or id is bus.ErrInvalidOption. Otherwise it behaves like Cancel.
func (a *Client) CancelWhere(ctx context.Context, db bun.IDB, b Chunk) (ChunkResult, error) {
	return a.changeWhere(ctx, db, "cancel", store.PendingChange{Cancel: true}, b)
}

// RescheduleWhere is [Client.Reschedule] for the next messages that match a filter, in chunks like
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
	ids, last, more, err := st.Pending.Matching(ctx, db, b.Filter.rows(), b.After, b.UpTo, b.Limit)
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

// Preview describes what chunks of a filter would change.
type Preview struct {
	// UpTo is the greatest pending id, for [Chunk.UpTo]. It is 0 when no message is pending.
	UpTo int64 `json:"up_to"`
	// Messages is the number of matches; More is true if there may be more.
	Messages int  `json:"messages"`
	More     bool `json:"more,omitempty"`
	// Consumers lists the stored consumer names of these messages, sorted.
	Consumers []string `json:"consumers,omitempty"`
}

// Preview counts the messages that match before they are changed, up to the given maximum. Rare
// matches scan the whole table. It changes nothing.
func (a *Client) Preview(ctx context.Context, db bun.IDB, filter Filter, most int) (p Preview, err error) {
	st, db, err := a.stores.Of(db, errNotMade)
	if err = errors.Join(err, filter.check()); err == nil && most < 1 {
		err = fmt.Errorf("of up to %d: %w: 1 or more is allowed", most, bus.ErrInvalidOption)
	}
	if err == nil {
		p.UpTo, err = st.Pending.Last(ctx, db)
	}
	after := int64(0)
	for more := p.UpTo > 0; more && err == nil && !p.More; {
		var ids []int64
		ids, after, more, err = st.Pending.Matching(ctx, db, filter.rows(), after, p.UpTo, most-p.Messages)
		p.Messages += len(ids)
		p.More = more && p.Messages == most
		if err == nil {
			var names []string
			names, err = st.Operations.ConsumersOf(ctx, db, ids)
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
