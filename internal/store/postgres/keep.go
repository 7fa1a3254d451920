package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// keepSQL takes rows as columns, as insertSQL does.
const keepSQL = `INSERT INTO {consumed} (` + dialect.KeptColumns + `)
SELECT u.id, u.message, u.consumer, u.kind, CASE WHEN u.paid THEN COALESCE(u.payload, '') END, NULLIF(u.headers, ''), NULLIF(u.order_key, ''),
  u.any_order, NULLIF(u.created, '')::timestamptz, COALESCE(u.attempts, 0), COALESCE(u.outcome, ''), NULLIF(u.reason, ''), COALESCE(u.version, ''),
  NULLIF(u.started, '')::timestamptz, COALESCE(u.took, 0), {now}, {now} + u.keep * interval '1 microsecond'
FROM (SELECT ? AS id, ? AS message, ? AS consumer, ? AS kind, ? AS paid, ? AS payload, ? AS headers, ? AS order_key, ? AS any_order, ? AS created,
  ? AS attempts, ? AS outcome, ? AS reason, ? AS version, ? AS started, ? AS took, ? AS keep) u {keep consumed}`

func (p *database) Keep(ctx context.Context, tx bun.IDB, rows []*dialect.Kept) error {
	if len(rows) <= fewRows {
		return p.Names.Keep(ctx, tx, rows)
	}
	text := func(of func(*dialect.Kept) string) any {
		return column(rows, "text", func(k **dialect.Kept) string { return of(*k) })
	}
	count := func(of func(*dialect.Kept) int64) any {
		return column(rows, "bigint", func(k **dialect.Kept) int64 { return of(*k) })
	}
	is := func(of func(*dialect.Kept) bool) any {
		return column(rows, "boolean", func(k **dialect.Kept) bool { return of(*k) })
	}
	instant := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return timestamp(t)
	}
	_, err := p.Query(ctx, tx, keepSQL,
		count(func(k *dialect.Kept) int64 { return k.ID }),
		column(rows, "uuid", func(k **dialect.Kept) string { return (*k).MessageID.String() }),
		text(func(k *dialect.Kept) string { return k.ConsumerType }),
		text(func(k *dialect.Kept) string { return k.PayloadType }),
		is(func(k *dialect.Kept) bool { return k.Payload != nil }),
		text(func(k *dialect.Kept) string { return *cmp.Or(k.Payload, new(string)) }),
		text(func(k *dialect.Kept) string { return k.Headers }),
		text(func(k *dialect.Kept) string { return k.OrderKey }),
		is(func(k *dialect.Kept) bool { return k.AnyOrder }),
		text(func(k *dialect.Kept) string { return instant(k.CreatedAt) }),
		count(func(k *dialect.Kept) int64 { return int64(k.Attempts) }),
		text(func(k *dialect.Kept) string { return k.Outcome }),
		text((*dialect.Kept).StoredReason),
		text(func(k *dialect.Kept) string { return k.Version }),
		text(func(k *dialect.Kept) string { return instant(k.StartedAt) }),
		count(func(k *dialect.Kept) int64 { return k.Took.Microseconds() }),
		count(func(k *dialect.Kept) int64 { return k.For.Microseconds() })).Exec(ctx)
	return err
}
