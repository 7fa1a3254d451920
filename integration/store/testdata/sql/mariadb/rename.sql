BEGIN;

SELECT m.id, m.attempts, m.crashes FROM JSON_TABLE('[39,40]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE SKIP LOCKED;

SELECT id, message_ids, CONNECTION_ID() AS pid, DATABASE() AS path FROM `app_message_claims` WHERE id IN (8, 8) AND owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081';

SAVEPOINT asyncmonolith;

UPDATE `app_consumer_messages` FORCE INDEX (PRIMARY) SET consumer_type = 'to-broker', headers = CASE id WHEN 39 THEN '{"asyncmonolith-former-consumer":"charge-card"}' WHEN 40 THEN '{"asyncmonolith-former-consumer":"charge-card","tenant":"a"}' END WHERE id IN (39, 40);

COMMIT;

COMMIT;
