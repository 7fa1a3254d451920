BEGIN;

UPDATE "app_consumer_messages" SET attempts = attempts WHERE id = 5 AND attempts = 0 AND crashes = 0
  AND EXISTS (SELECT 1 FROM "app_message_claims" c, json_each(c.message_ids) j WHERE c.id = 1 AND c.owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' AND j.value = 5);

SAVEPOINT fence_of_asyncmonolith;

COMMIT;
