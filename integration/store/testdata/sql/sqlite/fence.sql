BEGIN;

UPDATE "app_consumer_messages" AS m SET attempts = m.attempts FROM json_each('[[5,0,0]]') j
WHERE m.id = j.value ->> 0 AND m.attempts = j.value ->> 1 AND m.crashes = j.value ->> 2 RETURNING id;

SELECT id, solo, message_ids FROM "app_message_claims" WHERE id IN (SELECT value FROM json_each('[1]')) AND owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081';

SAVEPOINT fence_of_asyncmonolith;

COMMIT;
