BEGIN;

SELECT id FROM `app_message_claims` FORCE INDEX (PRIMARY) WHERE leased_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + leased_for ORDER BY id FOR UPDATE SKIP LOCKED;

SELECT id, owner, solo, message_ids, lanes FROM `app_message_claims` FORCE INDEX (PRIMARY) WHERE leased_until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED;

SELECT m.id, m.crashes FROM JSON_TABLE('[8]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE SKIP LOCKED;

INSERT INTO `app_message_crashes` (row_id, consumer_type, owner, solo, crashed_at)
SELECT m.id, m.consumer_type, j.owner, j.solo, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
FROM JSON_TABLE('[[8,"vanished",false]]', '$[*]' COLUMNS (id BIGINT PATH '$[0]', owner VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]', solo BOOLEAN PATH '$[2]')) j
STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE;

UPDATE JSON_TABLE('[[8,1]]', '$[*]' COLUMNS (id BIGINT PATH '$[0]', crashes BIGINT PATH '$[1]')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.crashes = j.crashes;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ DELETE c FROM JSON_TABLE('[2]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_message_claims` c FORCE INDEX (PRIMARY) ON c.id = j.id;

COMMIT;

COMMIT;
