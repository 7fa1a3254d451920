INSERT INTO `app_consumer_messages` (message_id, consumer_type, payload_type, payload, created_at, available_after, crashes)
VALUES ('', '', '', '', 0, 0, -32768),
  ('', '', '', '', 0, 0, -32768);

SELECT @@auto_increment_increment;

DELETE m FROM JSON_TABLE('[19,20]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id;

BEGIN;

INSERT IGNORE INTO `app_pending_insert_ids` (insert_id, consumer_type)
VALUES ('lane:10', 'send-receipt'),
  ('lane:11', 'send-receipt');

INSERT INTO `app_consumer_messages` (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, keyed)
VALUES ('01000000-0000-7000-8000-000000000002', 'send-receipt', 'order.placed', '{"id":2}', NULL, 'lane:10', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TRUE),
  ('01000000-0000-7000-8000-000000000003', 'send-receipt', 'order.placed', 'it''s', NULL, 'lane:11', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 1767323045678901, TRUE);

INSERT INTO `app_message_lanes` (id, consumer_type, lane, order_key, `rank`)
VALUES (21 + 0 * @@auto_increment_increment, 'send-receipt', 8087929771573949676, 'lane:1', 19),
  (21 + 1 * @@auto_increment_increment, 'send-receipt', 8087929771573949676, 'lane:1', 20);

INSERT INTO `app_pending_insert_ids` (insert_id, consumer_type, id)
VALUES ('lane:10', 'send-receipt', 21 + 0 * @@auto_increment_increment),
  ('lane:11', 'send-receipt', 21 + 1 * @@auto_increment_increment) ON DUPLICATE KEY UPDATE id = VALUES(id);

COMMIT;

COMMIT;
