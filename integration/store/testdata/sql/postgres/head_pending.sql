WITH page AS MATERIALIZED (SELECT m.id, m.message_id, m.consumer_type, m.payload_type, substr(m.payload, 1, 1000) AS payload, m.headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, m.errors, m.group_key, m.steps, m.order_key, m.lane, octet_length(m.payload) AS payload_bytes FROM "app_consumer_messages" m WHERE m.id = 3),
held AS MATERIALIZED (SELECT h.* FROM (SELECT c.id AS claim_id, u.mid FROM "app_message_claims" c CROSS JOIN LATERAL unnest(c.message_ids) u(mid)) h WHERE h.mid IN (SELECT id FROM page) LIMIT 100000)
SELECT r.*, c.id AS claim_id, c.owner, c.solo, c.claimed_at, c.leased_until, cardinality(c.message_ids) AS messages, c.leased_until < statement_timestamp() AS expired, p.paused_at AS paused_since, statement_timestamp() AS now
FROM page r LEFT JOIN held h ON h.mid = r.id LEFT JOIN "app_message_claims" c ON c.id = h.claim_id LEFT JOIN "app_paused_consumers" p ON p.consumer_type = r.consumer_type
ORDER BY r.consumer_type, r.payload_type, r.available_after, r.id LIMIT 1;
