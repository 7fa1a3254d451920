SELECT nextval('"app_message_ranks"') FROM generate_series(1, 2);

INSERT INTO "app_consumer_messages" (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, order_key, lane, rank)
VALUES ('01000000-0000-7000-8000-000000000002', 'send-receipt', 'order.placed', '{"id":2}', NULL, 'lane:10', statement_timestamp(), statement_timestamp(), 'lane:1', 8087929771573949676, 1),
  ('01000000-0000-7000-8000-000000000003', 'send-receipt', 'order.placed', 'it''s', NULL, 'lane:11', statement_timestamp(), '2026-01-02 03:04:05.678901+00:00'::timestamptz, 'lane:1', 8087929771573949676, 2)
ON CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO NOTHING RETURNING message_id;
