INSERT INTO "app_consumer_messages" (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after)
SELECT u.id, u.consumer, u.kind, u.payload, NULLIF(u.headers, ''), NULLIF(u.key, ''), statement_timestamp(),
  COALESCE(NULLIF(u.at, '')::timestamptz, statement_timestamp() + u.delay * interval '1 microsecond', statement_timestamp())
FROM unnest('{01000000000070008000000000000001,01000000000070008000000000000002,01000000000070008000000000000003,01000000000070008000000000000001}'::uuid[], '{"send-receipt","send-receipt","send-receipt","update-stock"}'::text[], '{"order.placed","order.placed","order.placed","order.placed"}'::text[], '{"{\"id\":1}","{\"id\":2}","it''s","{\"id\":1}"}'::text[], '{"{\"tenant\":\"a\"}","","","{\"tenant\":\"a\"}"}'::text[], '{"order:1","order:1","order:1","order:1"}'::text[], '{"","","2026-01-02 03:04:05.678901+00:00",""}'::text[], '{0,90000000,0,0}'::bigint[])
  u(id, consumer, kind, payload, headers, key, at, delay)
ON CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO NOTHING RETURNING message_id;
