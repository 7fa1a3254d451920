INSERT INTO "app_consumer_messages" (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after)
VALUES ('01000000-0000-7000-8000-000000000001', 'send-receipt', 'order.placed', '{"id":1}', '{"tenant":"a"}', NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
  ('01000000-0000-7000-8000-000000000002', 'send-receipt', 'order.placed', '{"id":2}', NULL, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 90000000),
  ('01000000-0000-7000-8000-000000000003', 'send-receipt', 'order.placed', 'it''s', NULL, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER), 1767323045678901),
  ('01000000-0000-7000-8000-000000000001', 'send-receipt', 'order.placed', '{"id":1}', '{"tenant":"a"}', NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
  ('01000000-0000-7000-8000-000000000002', 'send-receipt', 'order.placed', '{"id":2}', NULL, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 90000000),
  ('01000000-0000-7000-8000-000000000003', 'send-receipt', 'order.placed', 'it''s', NULL, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER), 1767323045678901),
  ('01000000-0000-7000-8000-000000000001', 'update-stock', 'order.placed', '{"id":1}', '{"tenant":"a"}', NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
  ('01000000-0000-7000-8000-000000000001', 'update-stock', 'order.placed', '{"id":1}', '{"tenant":"a"}', NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER));
