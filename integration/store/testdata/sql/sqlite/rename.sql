BEGIN;

UPDATE "app_consumer_messages" AS m SET attempts = m.attempts FROM json_each('[[42,0,0],[43,0,0]]') j
WHERE m.id = j.value ->> 0 AND m.attempts = j.value ->> 1 AND m.crashes = j.value ->> 2 RETURNING id;

SELECT id, solo, message_ids FROM "app_message_claims" WHERE id IN (SELECT value FROM json_each('[7,7]')) AND owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081';

SAVEPOINT fence_of_asyncmonolith;

INSERT INTO "app_consumer_messages" (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after)
VALUES ('00000000-0000-0000-0000-000000000001', 'to-broker', '', '', NULL, 'order:4', CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO NOTHING RETURNING message_id;

DELETE FROM "app_consumer_messages" WHERE insert_id IS NOT NULL AND (insert_id, consumer_type) IN (VALUES ('order:4', 'to-broker'));

UPDATE "app_consumer_messages" SET consumer_type = 'to-broker', headers = CASE id WHEN 42 THEN '{"asyncmonolith-former-consumer":"charge-card"}' WHEN 43 THEN '{"asyncmonolith-former-consumer":"charge-card","tenant":"a"}' END WHERE id IN (42, 43);

COMMIT;
