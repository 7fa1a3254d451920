SELECT m.id FROM "app_consumer_messages" m WHERE m.id IN (16, 99) AND m.id IN (SELECT mid FROM (SELECT c.id AS claim_id, j.value AS mid FROM "app_message_claims" c, json_each(c.message_ids) j) h);

SELECT id FROM "app_consumer_messages" WHERE id IN (16, 99) ORDER BY id;

BEGIN;

UPDATE "app_consumer_messages" SET id = id WHERE id < 0;

DELETE FROM "app_consumer_messages" WHERE id IN (16, 99) AND id NOT IN (SELECT mid FROM (SELECT c.id AS claim_id, j.value AS mid FROM "app_message_claims" c, json_each(c.message_ids) j) h)
RETURNING id, payload_type;

SELECT id FROM "app_consumer_messages" WHERE id IN (99) ORDER BY id;

COMMIT;
