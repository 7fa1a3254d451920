SELECT id FROM `app_message_claims` WHERE owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' ORDER BY id;

/*M! SET STATEMENT innodb_lock_wait_timeout=3 FOR */ UPDATE JSON_TABLE('[1]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_message_claims` c FORCE INDEX (PRIMARY) ON c.id = j.id SET c.leased_until = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 30000000 WHERE c.owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081';

SELECT id FROM `app_message_claims` WHERE owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' ORDER BY id;
