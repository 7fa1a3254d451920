BEGIN;

SELECT id, message_id, consumer_type, payload_type, insert_id FROM `app_poisoned_messages` WHERE TRUE ORDER BY id LIMIT 10 FOR UPDATE;

INSERT IGNORE INTO `app_pending_insert_ids` (insert_id, consumer_type)
VALUES ('order:3', 'renamed');

SELECT p.id, p.message_id, p.consumer_type, p.order_key, p.lane, p.rank
FROM JSON_TABLE('[11]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_poisoned_messages` p FORCE INDEX (PRIMARY) ON p.id = j.id WHERE p.lane IS NOT NULL ORDER BY p.id FOR UPDATE;

INSERT INTO `app_consumer_messages`
		(message_id, payload_type, payload, consumer_type, headers, insert_id, created_at, available_after, steps, keyed, group_key)
		SELECT p.message_id, p.payload_type, p.payload, CASE p.consumer_type WHEN 'update-stock' THEN 'renamed' ELSE p.consumer_type END, REPLACE(p.headers, '"asyncmonolith-deliver-by":', '"asyncmonolith-lifted-deliver-by":'), p.insert_id, p.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), p.steps, p.lane IS NOT NULL, p.group_key
		FROM JSON_TABLE('[11]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_poisoned_messages` p FORCE INDEX (PRIMARY) ON p.id = j.id ORDER BY p.id;

SELECT id, message_id, insert_id, consumer_type FROM `app_consumer_messages` WHERE id >= 14 AND message_id IN ('01000000-0000-7000-8000-000000000001') ORDER BY id;

INSERT INTO `app_pending_insert_ids` (insert_id, consumer_type, id)
VALUES ('order:3', 'renamed', 14 + 0 * @@auto_increment_increment) ON DUPLICATE KEY UPDATE id = VALUES(id);

DELETE p FROM JSON_TABLE('[11]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_poisoned_messages` p FORCE INDEX (PRIMARY) ON p.id = j.id;

COMMIT;
