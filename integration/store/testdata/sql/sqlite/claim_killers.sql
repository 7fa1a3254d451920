BEGIN;

UPDATE "app_message_claims" SET owner = owner WHERE id < 0;

SELECT 0 AS i, m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.errors END AS errors, (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) AS size, length(CAST(m.payload AS BLOB)) AS text FROM "app_consumer_messages" m
WHERE (m.consumer_type, m.payload_type) IN (SELECT j.value ->> 0, j.value ->> 1 FROM json_each('[["send-receipt","order.placed"],["update-stock","order.placed"]]') j) AND m.crashes > 0
  AND m.crashes BETWEEN 2 AND 32767 AND m.available_after <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND m.id NOT IN (SELECT j.value AS id FROM "app_message_claims" c, json_each(c.message_ids) j)
  AND m.consumer_type NOT IN (SELECT consumer_type FROM "app_paused_consumers")
ORDER BY m.available_after, m.id LIMIT 1;

COMMIT;
