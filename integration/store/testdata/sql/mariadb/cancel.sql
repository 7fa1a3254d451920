BEGIN;

SELECT DISTINCT consumer_type FROM `app_consumer_messages` WHERE id IN (10, 99) AND keyed = TRUE ORDER BY consumer_type;

SELECT t.id FROM JSON_TABLE('[10,99]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` t FORCE INDEX (PRIMARY) ON t.id = j.id WHERE t.id NOT IN (SELECT h.id FROM `app_message_claims` c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h);

SELECT t.id FROM JSON_TABLE('[10]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` t FORCE INDEX (PRIMARY) ON t.id = j.id FOR UPDATE SKIP LOCKED;

SELECT t.id FROM JSON_TABLE('[10]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_pending_insert_ids` t FORCE INDEX (app_pending_insert_ids_message) ON t.id = j.id FOR UPDATE SKIP LOCKED;

SELECT t.id FROM JSON_TABLE('[10]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_pending_insert_ids` t FORCE INDEX (app_pending_insert_ids_message) ON t.id = j.id;

SELECT m.id, m.payload_type FROM JSON_TABLE('[10]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id WHERE m.id NOT IN (SELECT h.id FROM `app_message_claims` c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h) ORDER BY m.id;

DELETE m FROM JSON_TABLE('[10]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id;

SELECT id FROM `app_consumer_messages` WHERE id IN (99) ORDER BY id;

COMMIT;

COMMIT;
