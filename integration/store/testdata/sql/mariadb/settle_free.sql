BEGIN;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ SELECT c.id, c.solo, c.message_ids FROM JSON_TABLE('[4]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_message_claims` c FORCE INDEX (PRIMARY) ON c.id = j.id WHERE c.owner = 'settler' FOR UPDATE;

SELECT t.id FROM JSON_TABLE('[13]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` t FORCE INDEX (PRIMARY) ON t.id = j.id FOR UPDATE SKIP LOCKED;

SELECT t.id FROM JSON_TABLE('[13]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` t FORCE INDEX (PRIMARY) ON t.id = j.id;

SELECT t.id FROM JSON_TABLE('[13]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_pending_insert_ids` t FORCE INDEX (app_pending_insert_ids_message) ON t.id = j.id FOR UPDATE SKIP LOCKED;

SELECT t.id FROM JSON_TABLE('[13]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_pending_insert_ids` t FORCE INDEX (app_pending_insert_ids_message) ON t.id = j.id;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ DELETE c FROM JSON_TABLE('[4]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_message_claims` c FORCE INDEX (PRIMARY) ON c.id = j.id;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ DELETE m FROM JSON_TABLE('[13]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id;

COMMIT;

COMMIT;
