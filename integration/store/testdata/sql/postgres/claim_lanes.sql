SELECT name FROM pg_catalog.pg_prepared_statements WHERE name LIKE 'asyncmonolith%';

PREPARE asyncmonolith_lanes_27f78e59f94de121 AS 
SELECT w.lane, MIN(w.rank) AS first, MAX(w.rank) AS last, count(*) AS n FROM (
  SELECT f.lane, f.rank FROM (
    SELECT m.lane, m.rank, m.available_after FROM "app_consumer_messages" m WHERE m.consumer_type = $1 AND m.keyed = TRUE AND m.rank > $2
      AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type = $3) ORDER BY m.rank LIMIT $4) f
  WHERE f.available_after <= statement_timestamp() AND f.lane NOT IN (SELECT unnest(c.lanes) AS lane FROM "app_message_claims" c WHERE c.consumer_type = ANY($5::text[]))
    AND NOT EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.consumer_type = ANY($6::text[]) AND p.lane = f.lane AND p.parks) ORDER BY f.rank LIMIT $7) w
GROUP BY w.lane ORDER BY 2;

PREPARE asyncmonolith_lanes_efaf4011bc6f9d81 AS SELECT count(*) AS n, COALESCE(MAX(f.rank), 0) AS last FROM (
  SELECT m.rank FROM "app_consumer_messages" m WHERE m.consumer_type = $1 AND m.keyed = TRUE AND m.rank > $2
    AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type = $3) ORDER BY m.rank LIMIT $4) f;

PREPARE asyncmonolith_lanes_a1edd4bf47a2f456 AS 
SELECT r.* FROM unnest($1::bigint[]) WITH ORDINALITY l(lane, o) CROSS JOIN LATERAL (
  SELECT m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) AS size, octet_length(m.payload) AS text, m.order_key, m.lane, m.rank, m.available_after <= statement_timestamp() AS due FROM "app_consumer_messages" m
  WHERE m.consumer_type = $2 AND m.lane = l.lane AND m.lane IS NOT NULL ORDER BY m.lane, m.rank LIMIT $3) r
WHERE l.lane NOT IN (SELECT unnest(c.lanes) AS lane FROM "app_message_claims" c WHERE c.consumer_type = ANY($4::text[])) AND NOT EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.consumer_type = ANY($5::text[]) AND p.lane = l.lane AND p.parks)
  AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type = ANY($6::text[])) ORDER BY l.o, r.rank;

PREPARE asyncmonolith_record_lanes_c1a2487424991693 AS 
INSERT INTO "app_message_claims" (owner, solo, claimed_at, leased_until, leased_for, consumer_type, message_ids, lanes)
VALUES ($1::text, $2::boolean, statement_timestamp(), statement_timestamp() + $3::bigint * interval '1 microsecond', $4::bigint, $5::text, $6::bigint[], $7::bigint[])
RETURNING id;

BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s';
	SET LOCAL work_mem = '16MB'; SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL idle_in_transaction_session_timeout = '1s'; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL max_parallel_workers_per_gather = 0;

SELECT consumer_type, parks FROM "app_message_gates" WHERE consumer_type IN ('send-receipt') ORDER BY consumer_type FOR UPDATE;

INSERT INTO "app_message_gates" (consumer_type, parks)
VALUES ('send-receipt', TRUE)
ON CONFLICT (consumer_type) DO NOTHING;

SELECT consumer_type, parks FROM "app_message_gates" WHERE consumer_type IN ('send-receipt') ORDER BY consumer_type FOR UPDATE;

EXECUTE asyncmonolith_lanes_27f78e59f94de121('send-receipt', 0, 'send-receipt', 400, '{"send-receipt"}', '{"send-receipt"}', 100);

EXECUTE asyncmonolith_lanes_efaf4011bc6f9d81('send-receipt', 0, 'send-receipt', 400);

EXECUTE asyncmonolith_lanes_a1edd4bf47a2f456('{8087929771573949676}', 'send-receipt', 5, '{"send-receipt"}', '{"send-receipt"}', '{"send-receipt"}');

EXECUTE asyncmonolith_record_lanes_c1a2487424991693('0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081', FALSE, 60000000, 60000000, 'send-receipt', '{32,33}', '{8087929771573949676,8087929771573949676}');

COMMIT;
