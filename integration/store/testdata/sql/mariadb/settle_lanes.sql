BEGIN;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ SELECT c.id, c.solo, c.message_ids, c.lanes FROM JSON_TABLE('[6]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_message_claims` c FORCE INDEX (PRIMARY) ON c.id = j.id WHERE c.owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' FOR UPDATE;

UPDATE `app_message_claims` SET message_ids = '[26]', lanes = '[917475656770531817]', leased_until = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 60000000 WHERE id = 6;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ 
INSERT INTO `app_poisoned_messages` (id, message_id, consumer_type, payload_type, payload, headers, insert_id,
	created_at, available_after, attempts, crashes, errors, poisoned_at, reason, group_key, steps, fingerprint, order_key, lane, `rank`, parks)
SELECT CASE WHEN EXISTS (SELECT 1 FROM `app_poisoned_messages` p WHERE p.id = m.id) THEN m.id
    + (SELECT COALESCE(MAX(p.id), 0) FROM `app_poisoned_messages` p) + (SELECT COALESCE(MAX(o.id), 0) FROM `app_consumer_messages` o) ELSE m.id END, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts + 1, m.crashes, CASE WHEN r.errors = '' THEN m.errors ELSE r.errors END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), r.reason, m.group_key, m.steps, r.fingerprint,
  k.order_key, k.lane, k.rank, k.id IS NOT NULL AND COALESCE(r.parks, FALSE)
FROM JSON_TABLE('[{"c":6,"m":25,"o":"poison","d":0,"e":"","r":"attempts used up","p":true}]', '$[*]' COLUMNS (mid BIGINT PATH '$.m', outcome VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.o', delay BIGINT PATH '$.d',
	errors LONGTEXT CHARACTER SET utf8mb4 PATH '$.e', reason LONGTEXT CHARACTER SET utf8mb4 PATH '$.r', fingerprint VARCHAR(32) CHARACTER SET utf8mb4 PATH '$.f', parks BOOLEAN PATH '$.p')) r STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = r.mid LEFT JOIN `app_message_lanes` k FORCE INDEX (PRIMARY) ON k.id = m.id FOR UPDATE;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ DELETE m FROM JSON_TABLE('[25]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id;

COMMIT;

COMMIT;
