BEGIN;

UPDATE "app_message_claims" SET owner = owner WHERE id < 0;

SELECT id, solo, message_ids FROM "app_message_claims" WHERE id IN (SELECT value FROM json_each('[1,2]')) AND owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081';

DELETE FROM "app_consumer_messages" WHERE id IN (SELECT value FROM json_each('[3,5,8]'));

DELETE FROM "app_message_claims" WHERE id IN (SELECT value FROM json_each('[1]'));

COMMIT;
