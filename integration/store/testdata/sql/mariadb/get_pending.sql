WITH page AS  (SELECT m.id, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, m.errors, m.group_key, m.steps, (SELECT l.order_key FROM `app_message_lanes` l WHERE l.id = m.id) AS order_key, (SELECT l.lane FROM `app_message_lanes` l WHERE l.id = m.id) AS lane, OCTET_LENGTH(m.payload) AS payload_bytes FROM `app_consumer_messages` m WHERE m.id = 3),
held AS  (SELECT h.* FROM (SELECT c.id AS claim_id, h.id AS mid FROM `app_message_claims` c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h) h WHERE h.mid IN (SELECT id FROM page) LIMIT 100000)
SELECT r.*, c.id AS claim_id, c.owner, c.solo, c.claimed_at, c.leased_until, JSON_LENGTH(c.message_ids) AS messages, c.leased_until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS expired, p.paused_at AS paused_since, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now
FROM page r LEFT JOIN held h ON h.mid = r.id LEFT JOIN `app_message_claims` c ON c.id = h.claim_id LEFT JOIN `app_paused_consumers` p ON p.consumer_type = r.consumer_type
ORDER BY r.consumer_type, r.payload_type, r.available_after, r.id LIMIT 1;
