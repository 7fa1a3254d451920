INSERT INTO "app_consumer_messages" (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after)
VALUES ('01000000-0000-7000-8000-000000000001', 'send-receipt', 'order.placed', '{"id":1}', '{"tenant":"a"}', 'order:3', statement_timestamp(), statement_timestamp()),
  ('01000000-0000-7000-8000-000000000002', 'send-receipt', 'order.placed', '{"id":2}', NULL, 'order:3', statement_timestamp(), statement_timestamp() + 90000000 * interval '1 microsecond'),
  ('01000000-0000-7000-8000-000000000003', 'send-receipt', 'order.placed', 'it''s', NULL, 'order:3', statement_timestamp(), '2026-01-02 03:04:05.678901+00:00'::timestamptz),
  ('01000000-0000-7000-8000-000000000001', 'update-stock', 'order.placed', '{"id":1}', '{"tenant":"a"}', 'order:3', statement_timestamp(), statement_timestamp())
ON CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO NOTHING RETURNING message_id;
