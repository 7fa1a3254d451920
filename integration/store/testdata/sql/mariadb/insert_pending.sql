BEGIN;

INSERT IGNORE INTO `app_pending_insert_ids` (insert_id, consumer_type)
VALUES ('order:3', 'send-receipt'),
  ('order:3', 'update-stock');

SELECT k.insert_id, k.consumer_type FROM JSON_TABLE('[{"InsertID":"order:3","ConsumerType":"send-receipt"},{"InsertID":"order:3","ConsumerType":"update-stock"}]', '$[*]' COLUMNS (insert_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.InsertID', consumer VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.ConsumerType')) j
STRAIGHT_JOIN `app_pending_insert_ids` k FORCE INDEX (PRIMARY) ON k.insert_id = j.insert_id AND k.consumer_type = j.consumer WHERE k.id IS NULL LOCK IN SHARE MODE;

INSERT INTO `app_consumer_messages` (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after)
VALUES ('01000000-0000-7000-8000-000000000001', 'update-stock', 'order.placed', '{"id":1}', '{"tenant":"a"}', 'order:3', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));

INSERT INTO `app_pending_insert_ids` (insert_id, consumer_type, id)
VALUES ('order:3', 'update-stock', 11 + 0 * @@auto_increment_increment) ON DUPLICATE KEY UPDATE id = VALUES(id);

COMMIT;

COMMIT;
