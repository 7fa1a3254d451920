SELECT name FROM pg_catalog.pg_prepared_statements WHERE name LIKE 'asyncmonolith%';

PREPARE asyncmonolith_pick_crashed_9e9d5f5c114a3336 AS 
SELECT 0 AS i, m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) AS size, octet_length(m.payload) AS text FROM "app_consumer_messages" m
WHERE (m.consumer_type, m.payload_type) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND m.keyed = FALSE AND m.crashes > 0
  AND m.crashes BETWEEN $3 AND $4 AND m.available_after <= statement_timestamp()
  AND m.id NOT IN (SELECT unnest(message_ids) AS id FROM "app_message_claims" LIMIT 100000) AND m.consumer_type NOT IN (SELECT consumer_type FROM "app_paused_consumers")
ORDER BY m.available_after, m.id LIMIT $5 FOR UPDATE SKIP LOCKED;

BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s';
	SET LOCAL work_mem = '16MB'; SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_generic_plan;

EXECUTE asyncmonolith_pick_crashed_9e9d5f5c114a3336('{"send-receipt","update-stock"}', '{"order.placed","order.placed"}', 1, 1, 8);

COMMIT;
