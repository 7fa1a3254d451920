BEGIN;

UPDATE "app_message_claims" SET owner = owner WHERE id < 0;

SELECT id FROM "app_message_claims" WHERE leased_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER) ORDER BY id LIMIT 20;

SELECT h.id FROM (SELECT m.id, m.crashes, c.solo FROM "app_message_claims" c, json_each(c.message_ids) j JOIN "app_consumer_messages" m ON m.id = j.value
	WHERE c.id IN (SELECT value FROM json_each('[2]'))) h WHERE h.solo AND h.crashes + 1 >= 3;

INSERT INTO "app_poisoned_messages" (id, message_id, consumer_type, payload_type, payload, headers, insert_id,
	created_at, available_after, attempts, crashes, errors, poisoned_at, reason)
SELECT CASE WHEN EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.id = m.id) THEN m.id
    + (SELECT COALESCE(MAX(p.id), 0) FROM "app_poisoned_messages" p) + (SELECT COALESCE(MAX(o.id), 0) FROM "app_consumer_messages" o) ELSE m.id END, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts, m.crashes + 1, m.errors, CAST(unixepoch('subsec') * 1000000 AS INTEGER), 'owner vanished 3 times' FROM "app_consumer_messages" m WHERE m.id IN (SELECT value FROM json_each('null'));

DELETE FROM "app_consumer_messages" WHERE id IN (SELECT value FROM json_each('null'));

UPDATE "app_consumer_messages" AS m SET crashes = CASE WHEN h.solo THEN h.crashes + 1 ELSE MIN(h.crashes + 1, 3 - 1) END
FROM (SELECT m.id, m.crashes, c.solo FROM "app_message_claims" c, json_each(c.message_ids) j JOIN "app_consumer_messages" m ON m.id = j.value
	WHERE c.id IN (SELECT value FROM json_each('[2]'))) h WHERE m.id = h.id;

DELETE FROM "app_message_claims" WHERE id IN (SELECT value FROM json_each('[2]'));

COMMIT;
