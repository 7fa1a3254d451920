BEGIN;

/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ DELETE c FROM JSON_TABLE('[1,2]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_message_claims` c FORCE INDEX (PRIMARY) ON c.id = j.id WHERE c.owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081';

COMMIT;

COMMIT;
