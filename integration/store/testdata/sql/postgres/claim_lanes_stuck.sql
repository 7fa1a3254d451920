BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s';
	SET LOCAL work_mem = '16MB'; SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL idle_in_transaction_session_timeout = '1s'; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL max_parallel_workers_per_gather = 0;

SELECT consumer_type, parks FROM "app_message_gates" WHERE consumer_type IN ('send-receipt') ORDER BY consumer_type FOR UPDATE;

SELECT m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) AS size, octet_length(m.payload) AS text, m.order_key, m.lane, m.rank, TRUE AS due FROM "app_consumer_messages" m WHERE m.consumer_type = 'send-receipt' AND m.keyed = TRUE AND m.crashes > 0 AND m.available_after <= statement_timestamp() AND NOT EXISTS (SELECT 1 FROM "app_consumer_messages" f WHERE f.consumer_type = m.consumer_type AND f.lane = m.lane AND f.lane IS NOT NULL AND f.rank < m.rank)
  AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type = m.consumer_type)
  AND m.crashes BETWEEN 1 AND 1 AND m.payload_type IN ('order.placed') AND m.lane NOT IN (SELECT unnest(c.lanes) AS lane FROM "app_message_claims" c WHERE c.consumer_type = ANY('{"send-receipt"}'::text[])) AND NOT EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.consumer_type = ANY('{"send-receipt"}'::text[]) AND p.lane = m.lane AND p.parks)
  AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type = ANY('{"send-receipt"}'::text[])) ORDER BY m.rank LIMIT 8;

COMMIT;
