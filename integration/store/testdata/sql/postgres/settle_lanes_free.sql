SELECT name FROM pg_catalog.pg_prepared_statements WHERE name LIKE 'asyncmonolith%';

PREPARE asyncmonolith_settle_lanes_free_341f62c4228efe0a AS 
WITH live AS MATERIALIZED (
  SELECT id, message_ids, lanes FROM "app_message_claims" WHERE id = ANY((SELECT $1::bigint[])::bigint[]) AND owner = $2 ORDER BY id FOR UPDATE),
held AS MATERIALIZED (SELECT l.id AS cid, u.mid, u.lane FROM live l CROSS JOIN LATERAL unnest(l.message_ids, l.lanes) u(mid, lane)),
sent AS MATERIALIZED (
  SELECT r.* FROM unnest((SELECT $3::bigint[]),
  (SELECT $4::bigint[]),
  (SELECT $5::text[]),
  (SELECT $6::bigint[]),
  (SELECT $7::text[]),
  (SELECT $8::text[]),
  (SELECT $9::boolean[]))
    r(cid, mid, outcome, delay, errors, reason, parks)
  JOIN held h ON h.cid = r.cid AND h.mid = r.mid),
free AS MATERIALIZED (
  SELECT m.id FROM "app_consumer_messages" m WHERE m.id IN (SELECT s.mid FROM sent s WHERE s.outcome <> 'release') ORDER BY m.id FOR UPDATE SKIP LOCKED),
busy AS MATERIALIZED (
  SELECT s.cid, s.mid FROM sent s JOIN "app_consumer_messages" m ON m.id = s.mid
  WHERE s.outcome <> 'release' AND s.mid NOT IN (SELECT id FROM free)),
res AS MATERIALIZED (SELECT * FROM sent s WHERE s.outcome = 'release' OR s.mid NOT IN (SELECT mid FROM busy)),
rest AS MATERIALIZED (
  SELECT h.cid, array_agg(h.mid) FILTER (WHERE r.mid IS NULL) AS ids,
    CASE WHEN bool_or(h.lane IS NOT NULL) THEN array_agg(h.lane) FILTER (WHERE r.mid IS NULL) END AS lanes
  FROM held h LEFT JOIN res r ON r.cid = h.cid AND r.mid = h.mid GROUP BY h.cid),
gone AS (DELETE FROM "app_message_claims" c USING rest k WHERE c.id = k.cid AND k.ids IS NULL),
kept AS (
  UPDATE "app_message_claims" c SET message_ids = k.ids, lanes = k.lanes, leased_until = statement_timestamp() + $10::bigint * interval '1 microsecond'
  FROM rest k WHERE c.id = k.cid AND k.ids IS NOT NULL),
fin AS (DELETE FROM "app_consumer_messages" m USING res r WHERE m.id = r.mid AND r.outcome = 'done'),
bad AS (DELETE FROM "app_consumer_messages" m USING res r WHERE m.id = r.mid AND r.outcome = 'poison'
  RETURNING m.id, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, m.errors, m.group_key, m.steps, m.order_key, m.lane, m.rank, r.parks, r.errors AS new_errors, r.reason, r.cid),
poi AS (
  INSERT INTO "app_poisoned_messages" (id, message_id, consumer_type, payload_type, payload, headers, insert_id,
	created_at, available_after, attempts, crashes, errors, poisoned_at, reason, group_key, steps, fingerprint, order_key, lane, rank, parks)
  SELECT CASE WHEN EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.id = bad.id) THEN bad.id
    + (SELECT COALESCE(MAX(p.id), 0) FROM "app_poisoned_messages" p) + (SELECT COALESCE(MAX(o.id), 0) FROM "app_consumer_messages" o) ELSE bad.id END, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at,
    available_after, attempts + 1, crashes, COALESCE(NULLIF(new_errors, ''), errors), statement_timestamp(), reason, group_key, steps, (SELECT f.print FROM unnest($11::bigint[], $12::bigint[], $13::text[]) f(cid, mid, print) WHERE f.cid = bad.cid AND f.mid = bad.id), order_key, lane, rank, lane IS NOT NULL AND parks FROM bad),
upd AS (
  UPDATE "app_consumer_messages" m SET attempts = m.attempts + CASE r.outcome WHEN 'failed' THEN 1 ELSE 0 END, crashes = 0,
    errors = COALESCE(NULLIF(r.errors, ''), m.errors), available_after = statement_timestamp() + r.delay * interval '1 microsecond', rank = CASE WHEN m.rank >= 100000000000000 THEN (EXTRACT(EPOCH FROM statement_timestamp() + r.delay * interval '1 microsecond') * 1000000)::bigint ELSE m.rank END
  FROM res r WHERE m.id = r.mid AND r.outcome IN ('failed', 'snooze'))
SELECT l.id, (SELECT count(*) FROM res r WHERE r.cid = l.id) AS messages, (SELECT array_agg(b.mid) FROM busy b WHERE b.cid = l.id) AS busy FROM live l;

EXECUTE asyncmonolith_settle_lanes_free_341f62c4228efe0a('{7}', '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081', '{7}', '{36}', '{"poison"}', '{0}', '{""}', '{"attempts used up"}', '{TRUE}', 60000000, NULL, NULL, NULL);
