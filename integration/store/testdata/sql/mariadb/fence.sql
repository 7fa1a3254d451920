BEGIN;

SELECT m.id, m.attempts, m.crashes FROM JSON_TABLE('[5]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE /*M! WAIT 1 */;

SELECT id, message_ids, CONNECTION_ID() AS pid, DATABASE() AS path FROM `app_message_claims` WHERE id IN (1) AND owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081';

SAVEPOINT asyncmonolith;

COMMIT;
