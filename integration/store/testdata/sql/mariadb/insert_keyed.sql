BEGIN;

INSERT IGNORE INTO `app_pending_insert_ids` (insert_id, consumer_type)
VALUES ('order:1', 'send-receipt'),
  ('order:1', 'update-stock');

INSERT INTO `app_consumer_messages` (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after)
VALUES ('01000000-0000-7000-8000-000000000001', 'send-receipt', 'order.placed', '{"id":1}', '{"tenant":"a"}', 'order:1', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
  ('01000000-0000-7000-8000-000000000001', 'update-stock', 'order.placed', '{"id":1}', '{"tenant":"a"}', 'order:1', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));

INSERT INTO `app_pending_insert_ids` (insert_id, consumer_type, id)
VALUES ('order:1', 'send-receipt', 5 + 0 * @@auto_increment_increment),
  ('order:1', 'update-stock', 5 + 1 * @@auto_increment_increment) ON DUPLICATE KEY UPDATE id = VALUES(id);

COMMIT;

COMMIT;
