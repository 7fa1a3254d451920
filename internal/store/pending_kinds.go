package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// PendingKind counts pending messages of a stored consumer and payload type.
type PendingKind struct {
	ConsumerType string         `bun:"consumer_type"`
	PayloadType  string         `bun:"payload_type"`
	N            int            `bun:"n"`
	Oldest       dialect.Moment `bun:"oldest"` // when the first one was produced
	Newest       dialect.Moment `bun:"newest"`
}

// KindsOf counts pending messages by consumer and payload type.
func (s *OperationStore) KindsOf(ctx context.Context, db bun.IDB, ids []int64) (kinds []PendingKind, err error) {
	at := make(map[[2]string]int)
	for part := range slices.Chunk(ids, 1000) {
		found, err := read[[]PendingKind](ctx, s.tables, db, `
SELECT consumer_type, payload_type, count(*) AS n, MIN(created_at) AS oldest, MAX(created_at) AS newest FROM {messages} WHERE id IN (?)
GROUP BY consumer_type, payload_type`, bun.List(part))
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			key := [2]string{k.ConsumerType, k.PayloadType}
			i, known := at[key]
			if !known {
				at[key], kinds = len(kinds), append(kinds, k)
				continue
			}
			sum := &kinds[i]
			sum.N += k.N
			sum.Oldest.Time, sum.Newest.Time = earlier(sum.Oldest.Time, k.Oldest.Time), later(sum.Newest.Time, k.Newest.Time)
		}
	}
	slices.SortFunc(kinds, func(a, b PendingKind) int {
		return cmp.Or(cmp.Compare(a.ConsumerType, b.ConsumerType), cmp.Compare(a.PayloadType, b.PayloadType))
	})
	return kinds, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
