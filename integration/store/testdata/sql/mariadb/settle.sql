BEGIN;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ SELECT c.id, c.solo, c.message_ids FROM JSON_TABLE('[1,2]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_message_claims` c FORCE INDEX (PRIMARY) ON c.id = j.id WHERE c.owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' FOR UPDATE;

UPDATE `app_message_claims` SET message_ids = '[3,5,6]', leased_until = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 30000000 WHERE id = 1;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ DELETE m FROM JSON_TABLE('[4]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ 
UPDATE JSON_TABLE('[{"c":1,"m":1,"o":"failed","d":10000000,"e":"[{\\"attempt\\":1,\\"error\\":\\"it''s \\\\\\"bad\\\\\\"\\"}]","r":""}]', '$[*]' COLUMNS (mid BIGINT PATH '$.m', outcome VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.o', delay BIGINT PATH '$.d',
	errors LONGTEXT CHARACTER SET utf8mb4 PATH '$.e', reason LONGTEXT CHARACTER SET utf8mb4 PATH '$.r', fingerprint VARCHAR(32) CHARACTER SET utf8mb4 PATH '$.f')) r STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = r.mid SET m.attempts = m.attempts + CASE r.outcome WHEN 'failed' THEN 1 ELSE 0 END, m.crashes = 0,
  m.errors = CASE WHEN r.errors = '' THEN m.errors ELSE r.errors END, m.available_after = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + r.delay;

COMMIT;

COMMIT;
