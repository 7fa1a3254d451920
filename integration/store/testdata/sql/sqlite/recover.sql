BEGIN;

UPDATE "app_message_claims" SET owner = owner WHERE id < 0;

SELECT id FROM "app_message_claims" WHERE leased_until > CAST(unixepoch('subsec') * 1000000 AS INTEGER) + leased_for ORDER BY id;

SELECT id, owner, solo, message_ids, lanes FROM "app_message_claims" WHERE leased_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER) ORDER BY id LIMIT 20;

SELECT id, crashes FROM "app_consumer_messages" WHERE id IN (SELECT value FROM json_each('[12]'));

INSERT INTO "app_message_crashes" (row_id, consumer_type, owner, solo, crashed_at)
SELECT m.id, m.consumer_type, j.value ->> 1, j.value ->> 2, CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM json_each('[[12,"vanished",false]]') j JOIN "app_consumer_messages" m ON m.id = j.value ->> 0;

UPDATE "app_consumer_messages" AS m SET crashes = j.value ->> 1 FROM json_each('[[12,1]]') j WHERE m.id = j.value ->> 0;

DELETE FROM "app_message_claims" WHERE id IN (SELECT value FROM json_each('[2]'));

COMMIT;
