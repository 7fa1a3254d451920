BEGIN;

UPDATE "app_message_claims" SET owner = owner WHERE id < 0;

SELECT consumer_type, parks FROM "app_message_gates" WHERE consumer_type IN ('send-receipt') ORDER BY consumer_type;

INSERT INTO "app_message_gates" (consumer_type, parks)
VALUES ('send-receipt', TRUE)
ON CONFLICT (consumer_type) DO NOTHING;

SELECT consumer_type, parks FROM "app_message_gates" WHERE consumer_type IN ('send-receipt') ORDER BY consumer_type;

SELECT w.lane, MIN(w.rank) AS first, MAX(w.rank) AS last, count(*) AS n FROM (
  SELECT f.lane, f.rank FROM (
    SELECT m.lane, m.rank, m.available_after FROM "app_consumer_messages" m WHERE m.consumer_type = 'send-receipt' AND m.keyed = TRUE AND m.rank > 0
      AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type = 'send-receipt') ORDER BY m.rank LIMIT 400) f
  WHERE f.available_after <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND f.lane NOT IN (SELECT j.value AS lane FROM "app_message_claims" c, json_each(c.lanes) j WHERE c.consumer_type IN (SELECT value FROM json_each('["send-receipt"]')))
    AND NOT EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.consumer_type IN (SELECT value FROM json_each('["send-receipt"]')) AND p.lane = f.lane AND p.parks) ORDER BY f.rank LIMIT 100) w
GROUP BY w.lane ORDER BY 2;

SELECT count(*) AS n, COALESCE(MAX(f.rank), 0) AS last FROM (
  SELECT m.rank FROM "app_consumer_messages" m WHERE m.consumer_type = 'send-receipt' AND m.keyed = TRUE AND m.rank > 0
    AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type = 'send-receipt') ORDER BY m.rank LIMIT 400) f;

SELECT m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) AS size, length(CAST(m.payload AS BLOB)) AS text, m.order_key, m.lane, m.rank, m.available_after <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS due FROM (SELECT j.key AS o, j.value AS lane FROM json_each('[8087929771573949676]') j) l JOIN "app_consumer_messages" m ON m.id IN (
  SELECT m.id FROM "app_consumer_messages" m WHERE m.consumer_type = 'send-receipt' AND m.lane = l.lane AND m.lane IS NOT NULL ORDER BY m.lane, m.rank LIMIT 5)
WHERE l.lane NOT IN (SELECT j.value AS lane FROM "app_message_claims" c, json_each(c.lanes) j WHERE c.consumer_type IN (SELECT value FROM json_each('["send-receipt"]'))) AND NOT EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.consumer_type IN (SELECT value FROM json_each('["send-receipt"]')) AND p.lane = l.lane AND p.parks)
  AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type IN (SELECT value FROM json_each('["send-receipt"]'))) ORDER BY l.o, m.rank;

INSERT INTO "app_message_claims" (owner, solo, claimed_at, leased_until, leased_for, consumer_type, message_ids, lanes)
VALUES ('0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081', FALSE, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 60000000, 60000000, 'send-receipt', '[28,29]', '[8087929771573949676,8087929771573949676]')
RETURNING id;

COMMIT;
