package postgres

import (
	"cmp"

	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// keepSQL is the part of a settle that writes what results keep. An array has no null: there a text is empty
// instead, and a payload that is not kept is marked.
const keepSQL = `,
keep AS (
  INSERT INTO {consumed} (` + dialect.KeptColumns + `)
  SELECT k.id, k.message_id, k.consumer, k.kind, CASE WHEN k.with_payload THEN k.payload END, NULLIF(k.headers, ''),
    NULLIF(k.order_key, ''), k.any_order, NULLIF(k.created, '')::timestamptz, k.attempts, k.outcome, NULLIF(k.reason, ''), k.version,
    NULLIF(k.started, '')::timestamptz, k.took, {now}, {now} + k.time * interval '1 microsecond'
  FROM unnest((SELECT ?::bigint[]), (SELECT ?::bigint[]), (SELECT ?::uuid[]), (SELECT ?::text[]), (SELECT ?::text[]),
    (SELECT ?::boolean[]), (SELECT ?::text[]), (SELECT ?::text[]), (SELECT ?::text[]), (SELECT ?::boolean[]), (SELECT ?::text[]),
    (SELECT ?::int[]), (SELECT ?::text[]), (SELECT ?::text[]), (SELECT ?::text[]), (SELECT ?::text[]), (SELECT ?::bigint[]),
    (SELECT ?::bigint[]))
    k(cid, id, message_id, consumer, kind, with_payload, payload, headers, order_key, any_order, created, attempts, outcome, reason,
      version, started, took, time)
  JOIN res r ON r.cid = k.cid AND r.mid = k.id)`

// keptColumns returns what results keep as the values of keepSQL. Each of the results keeps its message.
func keptColumns(results []dialect.Result) []any {
	kept := dialect.KeptOf(results)
	return []any{
		pgdialect.Array(dialect.Each(results, func(r dialect.Result) int64 { return r.Claim })),
		arrayOf(kept, func(k *dialect.Kept) int64 { return k.ID }),
		arrayOf(kept, func(k *dialect.Kept) string { return k.MessageID.String() }),
		arrayOf(kept, func(k *dialect.Kept) string { return k.ConsumerType }),
		arrayOf(kept, func(k *dialect.Kept) string { return k.PayloadType }),
		arrayOf(kept, func(k *dialect.Kept) bool { return k.Payload != nil }),
		arrayOf(kept, func(k *dialect.Kept) string { return *cmp.Or(k.Payload, new(string)) }),
		arrayOf(kept, func(k *dialect.Kept) string { return k.Headers }),
		arrayOf(kept, func(k *dialect.Kept) string { return k.OrderKey }),
		arrayOf(kept, func(k *dialect.Kept) bool { return k.AnyOrder }),
		arrayOf(kept, func(k *dialect.Kept) string { return timestampOrEmpty(k.CreatedAt) }),
		arrayOf(kept, func(k *dialect.Kept) int { return k.Attempts }),
		arrayOf(kept, func(k *dialect.Kept) string { return k.Outcome }),
		arrayOf(kept, (*dialect.Kept).StoredReason),
		arrayOf(kept, func(k *dialect.Kept) string { return k.Version }),
		arrayOf(kept, func(k *dialect.Kept) string { return timestampOrEmpty(k.StartedAt) }),
		arrayOf(kept, func(k *dialect.Kept) int64 { return k.Took.Microseconds() }),
		arrayOf(kept, func(k *dialect.Kept) int64 { return k.For.Microseconds() }),
	}
}

func arrayOf[T any](kept []*dialect.Kept, of func(*dialect.Kept) T) any {
	return pgdialect.Array(dialect.Each(kept, of))
}
