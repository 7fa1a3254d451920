package testapp

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/uptrace/bun"
)

// Crowd is how much a database has that people look at, of 20 consumers, which are named consumer-00 and so on. The first has half
// of what is poisoned in one group; there are 13 groups of each. The messages of the last one have keys.
type Crowd struct {
	Pending, Poisoned int
}

// crowded writes what there is in a database that has been in use for as long as anything is kept: messages that are due, or later,
// that were tried before, have crashed, have insert ids or keys, or are claimed; two days of minutes, and of the rest as much
// as anybody is likely to have.
const crowded = `
SET LOCAL synchronous_commit = off;
INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors, order_key, lane, rank)
SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - {pending} + i), 12, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid,
  'consumer-' || lpad((i % 20)::text, 2, '0'), 'payload-' || i % 20 + CASE WHEN i % 20 = 5 THEN i % 3 ELSE 0 END, '{"id":"an order of usual size","lines":[1,2,3,4,5,6,7,8]}', '{"tenant":"t' || i % 50 || '"}',
  CASE WHEN i % 50 = 7 THEN 'insert-' || i END, now() - ({pending} - i) * interval '1 ms',
  CASE WHEN i % 10 = 3 THEN now() + i * interval '1 second' ELSE now() - ({pending} - i) * interval '1 ms' END,
  CASE WHEN i % 1000 = 2 THEN 2 ELSE 0 END, CASE WHEN i % 5000 = 4 AND i % 20 <> 19 THEN 1 ELSE 0 END,
  CASE WHEN i % 1000 = 2 THEN '[{"attempt":1,"at":"2026-01-02T03:04:05Z","error":"no luck"}]' END,
  CASE WHEN i % 20 = 19 THEN 'key-' || i % 10000 END, CASE WHEN i % 20 = 19 THEN i % 10000 END, CASE WHEN i % 20 = 19 THEN i END
FROM generate_series(1, {pending}) i;
INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, headers, created_at, available_after, attempts, crashes, errors, poisoned_at, reason, fingerprint)
SELECT 10000000 + i, gen_random_uuid(), 'consumer-' || lpad(CASE WHEN i % 2 = 0 THEN '00' ELSE (i / 2 % 20)::text END, 2, '0'), 'payload-' || CASE WHEN i % 2 = 0 THEN 0 ELSE i / 2 % 20 END, '{"id":"an order of usual size"}', '{}',
  now() - i * interval '1 ms', now() - i * interval '1 ms', 5, 0, '[{"attempt":5,"at":"2026-01-02T03:04:05Z","error":"no luck"}]', now() - ({poisoned} - i) * interval '1 ms', 'attempt 5 of 5 failed: no luck',
  CASE WHEN i % 2 = 0 THEN '1' || lpad('0', 16, '0') WHEN i / 40 % 13 > 0 THEN '1' || lpad((i / 40 % 13)::text, 16, '0') END
FROM generate_series(1, {poisoned}) i;
INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids)
SELECT 'process-' || n, false, now(), now() + interval '1 hour', array_agg(id) FROM (SELECT id, id / 20 % 40 AS n FROM consumer_messages WHERE consumer_type = 'consumer-05' AND id <= 100000) x GROUP BY n;
INSERT INTO message_minutes (consumer_type, minute, done, retried, run_3, lag_2) SELECT 'consumer-' || lpad(c::text, 2, '0'), date_trunc('minute', now()) - m * interval '1 minute', 100 + m % 7, m % 5, 100, 100
FROM generate_series(0, 19) c, generate_series(0, 48 * 60 - 1) m;
INSERT INTO message_failures (consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id)
SELECT 'consumer-' || lpad(c::text, 2, '0'), '1' || lpad(k::text, 16, '0'), '*errors.errorString', repeat('no luck ', 20), 10, now() - interval '1 day', now() - (c + k) * interval '1 minute', 'v1.2.3', 1
FROM generate_series(0, 19) c, generate_series(1, 50) k;
INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, stopped_at, manifest, state)
SELECT 'process-' || i, 'processor', 'host', i, 'shop', 'v1.2.' || i % 4, now() - interval '2 days', CASE WHEN i <= 20 THEN now() + interval '1 hour' ELSE now() - i * interval '10 minutes' END,
  CASE WHEN i > 25 THEN now() - i * interval '10 minutes' END,
  json_build_object('consumers', (SELECT json_agg(json_build_object('name', 'consumer-' || lpad(c::text, 2, '0'), 'payload_types', json_build_array('payload-' || c, 'payload-6', 'payload-7'), 'timeout', 10000000000, 'max_attempts', 5)) FROM generate_series(0, 18) c)), '{"every":15000000000,"running":2}'
FROM generate_series(1, 1000) i;
INSERT INTO consumed_messages (id, message_id, consumer_type, payload_type, payload, headers, order_key, any_order, created_at, attempts, outcome, version, started_at, run_micros, finished_at, expires_at)
SELECT i, gen_random_uuid(), 'consumer-' || lpad((i % 20)::text, 2, '0'), 'payload-' || i % 20, '{"id":"an order of usual size"}', '{"tenant":"t' || i % 50 || '"}', CASE WHEN i % 20 = 19 THEN 'key-' || i % 10000 END, false,
  now() - interval '1 hour', 0, 'done', 'v1.2.3', now() - i * interval '1 ms', 5000, now() - i * interval '1 ms', now() + interval '1 day' FROM generate_series(1, {poisoned}) i;
INSERT INTO message_crashes (row_id, consumer_type, owner, solo, crashed_at) SELECT id, consumer_type, 'process-21', false, now() - id * interval '1 ms' FROM consumer_messages WHERE crashes > 0;
INSERT INTO scheduled_messages (name, tag, payload_type, payload, headers, cron_expression, cron_timezone, available_after, paused, created_at)
SELECT 'schedule-' || i, 'tag', 'payload-0', '{}', '{}', '*/5 * * * *', 'Europe/Vienna', now() + interval '1 hour', i % 50 = 0, now() FROM generate_series(1, 1000) i;
INSERT INTO message_operations (kind, actor, reason, target, preview, state, rate, canary, canaries, after_id, up_to_id, changed, left_alone, note, created_at, finished_at)
SELECT 'requeue', 'ada', 'why', '{"poisoned":{"consumer":"consumer-01"}}', '{}', CASE WHEN i % 1000 = 0 THEN 'paused' ELSE 'done' END, 100, 10, '[]', 0, 1, 1, 0, '', now() - i * interval '1 minute', now() FROM generate_series(1, 10000) i;
INSERT INTO paused_consumers (consumer_type, paused_at, paused_by, note) VALUES ('consumer-03', now(), 'ada', 'why');
INSERT INTO event_subscriptions (name, version, shard, shards, filter, position, status, attempts, next_at, moved_at) SELECT 'projection-' || i, 1, 0, 1, '{}', 0, 'running', 0, now(), now() FROM generate_series(1, 50) i;
INSERT INTO event_parked (name, version, position, stream, reason, parked_at) SELECT 'projection-1', 1, i, 'stream', 'no luck', now() FROM generate_series(1, 10000) i`

// NewCrowd fills the tables of a PostgreSQL database, which must be empty.
func NewCrowd(t testing.TB, db *bun.DB, c Crowd) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	fill := func(ctx context.Context, tx bun.Tx) error {
		for statement := range strings.SplitSeq(crowded, ";\n") {
			statement = strings.NewReplacer("{pending}", strconv.Itoa(c.Pending), "{poisoned}", strconv.Itoa(c.Poisoned)).Replace(statement)
			if _, err := tx.NewRaw("?", bun.Safe(statement)).Exec(ctx); err != nil {
				t.Fatalf("crowd: %.100s: %v", statement, err)
			}
		}
		return nil
	}
	if err := db.RunInTx(ctx, nil, fill); err != nil {
		t.Fatalf("crowd: %v", err)
	}
	if _, err := db.ExecContext(ctx, "VACUUM ANALYZE"); err != nil {
		t.Fatalf("crowd: %v", err)
	}
}

// RowsRead counts the rows of each table that PostgreSQL reads while fn runs, whether from the table or by an index. The pool
// must have one connection: what others read is told later, or never.
func RowsRead(t testing.TB, db *bun.DB, fn func()) (rows Reads) {
	t.Helper()
	if most := db.Stats().MaxOpenConnections; most != 1 {
		t.Fatalf("rows read: the pool has %d connections, want 1", most)
	}
	before := readsOf(t, db)
	fn()
	rows = readsOf(t, db)
	for table, n := range before {
		if rows[table] -= n; rows[table] == 0 {
			delete(rows, table)
		}
	}
	return rows
}

// Reads are how many rows of each table were read.
type Reads map[string]int

// Sum is how many there were of all.
func (r Reads) Sum() (n int) {
	for _, rows := range r {
		n += rows
	}
	return n
}

// readsOf reads the statistics. A session tells them in the order in which it has read, at the latest a second after: a row of
// the test's own table that is in them was read after all else.
func readsOf(t testing.TB, db *bun.DB) Reads {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	exec := func(statement string) {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatalf("rows read: %v", err)
		}
	}
	exec("CREATE TABLE IF NOT EXISTS rows_read AS SELECT 1 AS one")
	var found []struct {
		Relname string
		Rows    int
	}
	reads := func() Reads {
		found = nil
		err := db.NewRaw(`SELECT t.relname, COALESCE(t.seq_tup_read, 0) + COALESCE((SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid), 0) AS rows
FROM pg_stat_user_tables t`).
			Scan(ctx, &found)
		if err != nil {
			t.Fatalf("rows read: %v", err)
		}
		all := Reads{}
		for _, table := range found {
			all[table.Relname] = table.Rows
		}
		return all
	}
	own := func(all Reads) int { return all["rows_read"] }
	before := reads()
	exec("SELECT * FROM rows_read")
	var all Reads
	Eventually(t, "the session tells what it has read", func() bool {
		// Not known before PostgreSQL 15, which tells by itself.
		_, _ = db.ExecContext(ctx, "SELECT pg_stat_force_next_flush()")
		all = reads()
		return own(all) > own(before)
	})
	delete(all, "rows_read")
	return all
}
