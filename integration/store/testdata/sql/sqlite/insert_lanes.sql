INSERT INTO "app_consumer_messages" (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, order_key, lane, rank)
VALUES ('01000000-0000-7000-8000-000000000002', 'send-receipt', 'order.placed', '{"id":2}', NULL, 'lane:10', CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), 'lane:1', 8087929771573949676, NULL),
  ('01000000-0000-7000-8000-000000000003', 'send-receipt', 'order.placed', 'it''s', NULL, 'lane:11', CAST(unixepoch('subsec') * 1000000 AS INTEGER), 1767323045678901, 'lane:1', 8087929771573949676, NULL)
ON CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO NOTHING RETURNING message_id;
