SELECT 0 AS i, m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) AS size, length(CAST(m.payload AS BLOB)) AS text FROM "app_consumer_messages" m
WHERE m.consumer_type = 'send-receipt' AND m.payload_type = 'order.placed' AND m.keyed = FALSE AND m.crashes = 0 AND m.available_after <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  AND (m.available_after, m.id) > (-9223372036854775808, 0) AND m.id NOT IN (SELECT j.value AS id FROM "app_message_claims" c, json_each(c.message_ids) j)
  AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" WHERE consumer_type = 'send-receipt')
ORDER BY m.available_after, m.id LIMIT 3;

SELECT 1 AS i, m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (length(CAST(m.payload AS BLOB)) + COALESCE(length(CAST(m.headers AS BLOB)), 0) + COALESCE(length(CAST(m.errors AS BLOB)), 0)) AS size, length(CAST(m.payload AS BLOB)) AS text FROM "app_consumer_messages" m
WHERE m.consumer_type = 'update-stock' AND m.payload_type = 'order.placed' AND m.keyed = FALSE AND m.crashes = 0 AND m.available_after <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  AND (m.available_after, m.id) > (1767323045678901, 1) AND m.id NOT IN (SELECT j.value AS id FROM "app_message_claims" c, json_each(c.message_ids) j)
  AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" WHERE consumer_type = 'update-stock')
ORDER BY m.available_after, m.id LIMIT 2;

BEGIN;

UPDATE "app_message_claims" SET owner = owner WHERE id < 0;

SELECT m.id, m.attempts, m.crashes, m.available_after FROM json_each('[3,1,4,5,8]') j JOIN "app_consumer_messages" m ON m.id = j.value
WHERE m.id NOT IN (SELECT j.value AS id FROM "app_message_claims" c, json_each(c.message_ids) j) AND m.consumer_type NOT IN (SELECT consumer_type FROM "app_paused_consumers");

INSERT INTO "app_message_claims" (owner, solo, claimed_at, leased_until, leased_for, message_ids)
VALUES ('0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081', FALSE, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 30000000, 30000000, '[3,1,4,5,8]')
RETURNING id;

COMMIT;
