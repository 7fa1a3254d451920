WITH page AS MATERIALIZED (SELECT m.id, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, m.errors, m.group_key, m.steps, m.order_key, m.lane, length(CAST(m.payload AS BLOB)) AS payload_bytes FROM "app_consumer_messages" m WHERE m.id = 3),
held AS MATERIALIZED (SELECT h.* FROM (SELECT c.id AS claim_id, j.value AS mid FROM "app_message_claims" c, json_each(c.message_ids) j) h WHERE h.mid IN (SELECT id FROM page) LIMIT 100000)
SELECT r.*, c.id AS claim_id, c.owner, c.solo, c.claimed_at, c.leased_until, json_array_length(c.message_ids) AS messages, c.leased_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS expired, p.paused_at AS paused_since, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now
FROM page r LEFT JOIN held h ON h.mid = r.id LEFT JOIN "app_message_claims" c ON c.id = h.claim_id LEFT JOIN "app_paused_consumers" p ON p.consumer_type = r.consumer_type
ORDER BY r.consumer_type, r.payload_type, r.available_after, r.id LIMIT 1;
