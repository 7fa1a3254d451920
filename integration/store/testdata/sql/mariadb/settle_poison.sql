BEGIN;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ SELECT c.id, c.solo, c.message_ids FROM JSON_TABLE('[3]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_message_claims` c FORCE INDEX (PRIMARY) ON c.id = j.id WHERE c.owner = 'poisoner' FOR UPDATE;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ DELETE c FROM JSON_TABLE('[3]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_message_claims` c FORCE INDEX (PRIMARY) ON c.id = j.id;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ 
INSERT INTO `app_poisoned_messages` (id, message_id, consumer_type, payload_type, payload, headers, insert_id,
	created_at, available_after, attempts, crashes, errors, poisoned_at, reason, group_key, steps, fingerprint)
SELECT CASE WHEN EXISTS (SELECT 1 FROM `app_poisoned_messages` p WHERE p.id = m.id) THEN m.id
    + (SELECT COALESCE(MAX(p.id), 0) FROM `app_poisoned_messages` p) + (SELECT COALESCE(MAX(o.id), 0) FROM `app_consumer_messages` o) ELSE m.id END, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts + 1, m.crashes, CASE WHEN r.errors = '' THEN m.errors ELSE r.errors END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), r.reason, m.group_key, m.steps, r.fingerprint
FROM JSON_TABLE('[{"c":3,"m":11,"o":"poison","d":0,"e":"","r":""}]', '$[*]' COLUMNS (mid BIGINT PATH '$.m', outcome VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.o', delay BIGINT PATH '$.d',
	errors LONGTEXT CHARACTER SET utf8mb4 PATH '$.e', reason LONGTEXT CHARACTER SET utf8mb4 PATH '$.r', fingerprint VARCHAR(32) CHARACTER SET utf8mb4 PATH '$.f')) r STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = r.mid FOR UPDATE;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ DELETE m FROM JSON_TABLE('[11]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id;

COMMIT;

COMMIT;
