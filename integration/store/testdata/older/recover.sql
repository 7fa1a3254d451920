WITH dead AS MATERIALIZED (
  SELECT id, message_ids, solo FROM "message_claims" WHERE leased_until < statement_timestamp() ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM "message_claims" c USING dead d WHERE c.id = d.id),
ids AS MATERIALIZED (SELECT u.mid, d.solo FROM dead d CROSS JOIN LATERAL unnest(d.message_ids) u(mid)),
hit AS MATERIALIZED (
  SELECT m.id, i.solo, m.crashes FROM "consumer_messages" m JOIN ids i ON i.mid = m.id ORDER BY m.id FOR UPDATE OF m SKIP LOCKED),
dying AS (DELETE FROM "consumer_messages" m USING hit h WHERE m.id = h.id AND h.solo AND h.crashes + 1 >= 3 RETURNING m.id, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, m.errors),
poi AS (
  INSERT INTO "poisoned_messages" (id, message_id, consumer_type, payload_type, payload, headers, insert_id,
	created_at, available_after, attempts, crashes, errors, poisoned_at, reason)
  SELECT CASE WHEN EXISTS (SELECT 1 FROM "poisoned_messages" p WHERE p.id = dying.id) THEN dying.id
    + (SELECT COALESCE(MAX(p.id), 0) FROM "poisoned_messages" p) + (SELECT COALESCE(MAX(o.id), 0) FROM "consumer_messages" o) ELSE dying.id END, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at,
    available_after, attempts, crashes + 1, errors, statement_timestamp(), 'process lost 3 times' FROM dying),
bump AS (
  UPDATE "consumer_messages" m SET crashes = CASE WHEN h.solo THEN h.crashes + 1 ELSE LEAST(h.crashes + 1, 3 - 1) END
  FROM hit h WHERE m.id = h.id AND NOT (h.solo AND h.crashes + 1 >= 3))
SELECT (SELECT count(*) FROM dead) AS claims, (SELECT count(*) FROM hit) AS crashed, (SELECT count(*) FROM dying) AS poisoned;
