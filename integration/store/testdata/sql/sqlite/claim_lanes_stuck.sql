BEGIN;

UPDATE "app_message_claims" SET owner = owner WHERE id < 0;

SELECT consumer_type, parks FROM "app_message_gates" WHERE consumer_type IN ('send-receipt') ORDER BY consumer_type;

SELECT m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) AS size, length(CAST(m.payload AS BLOB)) AS text, m.order_key, m.lane, m.rank, TRUE AS due FROM "app_consumer_messages" m WHERE m.consumer_type = 'send-receipt' AND m.keyed = TRUE AND m.crashes > 0 AND m.available_after <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND NOT EXISTS (SELECT 1 FROM "app_consumer_messages" f WHERE f.consumer_type = m.consumer_type AND f.lane = m.lane AND f.lane IS NOT NULL AND f.rank < m.rank)
  AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type = m.consumer_type)
  AND m.crashes BETWEEN 1 AND 1 AND m.payload_type IN ('order.placed') AND m.lane NOT IN (SELECT j.value AS lane FROM "app_message_claims" c, json_each(c.lanes) j WHERE c.consumer_type IN (SELECT value FROM json_each('["send-receipt"]'))) AND NOT EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.consumer_type IN (SELECT value FROM json_each('["send-receipt"]')) AND p.lane = m.lane AND p.parks)
  AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type IN (SELECT value FROM json_each('["send-receipt"]'))) ORDER BY m.rank LIMIT 8;

COMMIT;
