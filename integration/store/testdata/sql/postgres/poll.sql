SELECT name FROM pg_catalog.pg_prepared_statements WHERE name LIKE 'asyncmonolith%';

PREPARE asyncmonolith_poll_e3896869c9703eb6 AS 
SELECT 0 AS kind, w.i AS value, m.id, m.available_after AS at
  FROM unnest((SELECT $1::bigint[]),
  (SELECT $2::text[]),
  (SELECT $3::text[]),
  (SELECT $4::timestamptz[]),
  (SELECT $5::bigint[])) w(i, consumer, payload, after_at, after_id)
  CROSS JOIN LATERAL (
    SELECT m.id, m.available_after FROM "app_consumer_messages" m WHERE m.consumer_type = w.consumer AND m.payload_type = w.payload
      AND m.keyed = FALSE AND m.crashes = 0 AND m.available_after <= statement_timestamp() AND (m.available_after, m.id) > (w.after_at, w.after_id) AND m.id NOT IN (SELECT unnest(message_ids) AS id FROM "app_message_claims" LIMIT 100000)
    ORDER BY m.available_after, m.id LIMIT 1) m
  WHERE w.consumer NOT IN (SELECT consumer_type FROM "app_paused_consumers")
UNION ALL SELECT DISTINCT LEAST(m.crashes, 2), w.i, 0, NULL::timestamptz FROM unnest((SELECT $6::bigint[]),
  (SELECT $7::text[]),
  (SELECT $8::text[])) w(i, consumer, payload)
  JOIN "app_consumer_messages" m ON m.consumer_type = w.consumer AND m.payload_type = w.payload AND m.keyed = FALSE AND m.crashes > 0
  WHERE m.available_after <= statement_timestamp() AND m.id NOT IN (SELECT unnest(message_ids) AS id FROM "app_message_claims" LIMIT 100000) AND m.consumer_type NOT IN (SELECT consumer_type FROM "app_paused_consumers")
UNION ALL SELECT 3, min(CASE WHEN leased_until > statement_timestamp() + leased_for * interval '1 microsecond' THEN -leased_for ELSE (extract(epoch FROM LEAST(leased_until, statement_timestamp() + interval '1 year') - statement_timestamp()) * 1000000)::bigint END), 0, NULL
  FROM "app_message_claims" HAVING count(*) > 0
UNION ALL SELECT 5, 0, 0, statement_timestamp()
UNION ALL SELECT 4, (extract(epoch FROM LEAST(min(n.available_after), statement_timestamp() + interval '1 year') - statement_timestamp()) * 1000000)::bigint, 0, NULL
  FROM unnest((SELECT $9::text[]),
  (SELECT $10::text[])) w(consumer, payload) CROSS JOIN LATERAL (
    SELECT m.available_after FROM "app_consumer_messages" m WHERE m.consumer_type = w.consumer AND m.payload_type = w.payload AND m.keyed = FALSE AND m.crashes = 0
      AND m.available_after > statement_timestamp() ORDER BY m.available_after LIMIT 1) n
  WHERE w.consumer NOT IN (SELECT consumer_type FROM "app_paused_consumers") HAVING count(*) > 0;

EXECUTE asyncmonolith_poll_e3896869c9703eb6('{0,1}', '{"send-receipt","update-stock"}', '{"order.placed","order.placed"}', '{"-infinity","2026-01-02 03:04:05.678901+00:00"}', '{0,1}', '{0,1}', '{"send-receipt","update-stock"}', '{"order.placed","order.placed"}', '{"send-receipt","update-stock"}', '{"order.placed","order.placed"}');
