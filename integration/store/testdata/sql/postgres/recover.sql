WITH dead AS MATERIALIZED (
  SELECT id, owner, message_ids, lanes, solo FROM "app_message_claims" WHERE leased_until < statement_timestamp() ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED),
ahead AS MATERIALIZED (SELECT id FROM "app_message_claims" WHERE leased_until > statement_timestamp() + leased_for * interval '1 microsecond' ORDER BY id FOR UPDATE SKIP LOCKED),
shortened AS (UPDATE "app_message_claims" c SET leased_until = statement_timestamp() + leased_for * interval '1 microsecond' FROM ahead a WHERE c.id = a.id),
gone AS (DELETE FROM "app_message_claims" c USING dead d WHERE c.id = d.id),
ids AS MATERIALIZED (
  SELECT DISTINCT ON (d.id, COALESCE(CASE WHEN m.rank < 100000000000000 THEN u.lane END, u.mid)) m.id AS mid, d.solo, d.owner
  FROM dead d CROSS JOIN LATERAL unnest(d.message_ids, d.lanes) WITH ORDINALITY u(mid, lane, n) JOIN "app_consumer_messages" m ON m.id = u.mid
  ORDER BY d.id, COALESCE(CASE WHEN m.rank < 100000000000000 THEN u.lane END, u.mid), u.n),
hit AS MATERIALIZED (
  SELECT m.id, m.consumer_type, i.solo, i.owner, m.crashes
  FROM "app_consumer_messages" m JOIN ids i ON i.mid = m.id ORDER BY m.id FOR UPDATE OF m SKIP LOCKED),
died AS (INSERT INTO "app_message_crashes" (row_id, consumer_type, owner, solo, crashed_at) SELECT h.id, h.consumer_type, h.owner, h.solo, statement_timestamp() FROM hit h),
dying AS (
  DELETE FROM "app_consumer_messages" m USING hit h WHERE m.id = h.id AND h.solo AND h.crashes + 1 >= 3
  RETURNING m.id, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, m.errors, m.group_key, m.steps, m.order_key, m.lane, m.rank),
poi AS (
  INSERT INTO "app_poisoned_messages" (id, message_id, consumer_type, payload_type, payload, headers, insert_id,
	created_at, available_after, attempts, crashes, errors, poisoned_at, reason, group_key, steps, fingerprint, order_key, lane, rank, parks)
  SELECT CASE WHEN EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.id = dying.id) THEN dying.id
    + (SELECT COALESCE(MAX(p.id), 0) FROM "app_poisoned_messages" p) + (SELECT COALESCE(MAX(o.id), 0) FROM "app_consumer_messages" o) ELSE dying.id END, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at,
    available_after, attempts, crashes + 1, errors, statement_timestamp(), 'process lost 3 times', group_key, steps, 'crash', order_key, lane, rank, lane IS NOT NULL AND (SELECT g.parks FROM "app_message_gates" g WHERE g.consumer_type = dying.consumer_type) FROM dying),
bump AS (
  UPDATE "app_consumer_messages" m SET crashes = CASE WHEN h.solo THEN h.crashes + 1 ELSE LEAST(h.crashes + 1, 3 - 1) END
  FROM hit h WHERE m.id = h.id AND NOT (h.solo AND h.crashes + 1 >= 3))
SELECT (SELECT count(*) FROM dead) AS claims, (SELECT count(*) FROM hit) AS crashed, (SELECT count(*) FROM dying) AS poisoned;
