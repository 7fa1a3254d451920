SELECT name FROM pg_catalog.pg_prepared_statements WHERE name LIKE 'asyncmonolith%';

PREPARE asyncmonolith_pick_3d387a6c4c987dc6 AS 
SELECT w.i, m.*
FROM unnest($1::int[], $2::text[], $3::text[], $4::int[], $5::timestamptz[], $6::bigint[]) w(i, consumer, payload, n, after_at, after_id)
CROSS JOIN LATERAL (
  SELECT m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (octet_length(m.payload) + COALESCE(octet_length(m.headers), 0) + COALESCE(octet_length(m.errors), 0)) AS size, octet_length(m.payload) AS text FROM "app_consumer_messages" m
  WHERE m.consumer_type = w.consumer AND m.payload_type = w.payload AND m.keyed = FALSE AND m.crashes = 0 AND m.available_after <= statement_timestamp()
    AND (m.available_after, m.id) > (w.after_at, w.after_id)
    AND m.id NOT IN (SELECT unnest(message_ids) AS id FROM "app_message_claims" LIMIT 100000)
  ORDER BY m.available_after, m.id LIMIT w.n FOR UPDATE SKIP LOCKED) m
WHERE w.consumer NOT IN (SELECT consumer_type FROM "app_paused_consumers");

PREPARE asyncmonolith_record_790c4975b031afc1 AS 
WITH free AS MATERIALIZED (
  SELECT x FROM unnest($1::bigint[]) x WHERE x NOT IN (SELECT unnest(message_ids) FROM "app_message_claims"))
INSERT INTO "app_message_claims" (owner, solo, claimed_at, leased_until, leased_for, message_ids)
SELECT $2::text, $3::boolean, statement_timestamp(), statement_timestamp() + $4::bigint * interval '1 microsecond', $5::bigint, array_agg(x) FROM free HAVING count(*) > 0 RETURNING id, message_ids;

BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s';
	SET LOCAL work_mem = '16MB'; SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_generic_plan;

EXECUTE asyncmonolith_pick_3d387a6c4c987dc6('{0,1}', '{"send-receipt","update-stock"}', '{"order.placed","order.placed"}', '{3,2}', '{"-infinity","2026-01-02 03:04:05.678901+00:00"}', '{0,1}');

EXECUTE asyncmonolith_record_790c4975b031afc1('{3,1,4,5,8}', '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081', FALSE, 30000000, 30000000);

COMMIT;
