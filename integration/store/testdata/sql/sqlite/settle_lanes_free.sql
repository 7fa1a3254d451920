BEGIN;

UPDATE "app_message_claims" SET owner = owner WHERE id < 0;

SELECT id, solo, message_ids, lanes FROM "app_message_claims" WHERE id IN (SELECT value FROM json_each('[6]')) AND owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081';

UPDATE "app_message_claims" SET message_ids = '[33]', lanes = '[6054745365647316311]', leased_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 60000000 WHERE id = 6;

INSERT INTO "app_poisoned_messages" (id, message_id, consumer_type, payload_type, payload, headers, insert_id,
	created_at, available_after, attempts, crashes, errors, poisoned_at, reason, group_key, steps, fingerprint, order_key, lane, rank, parks)
SELECT CASE WHEN EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.id = m.id) THEN m.id
    + (SELECT COALESCE(MAX(p.id), 0) FROM "app_poisoned_messages" p) + (SELECT COALESCE(MAX(o.id), 0) FROM "app_consumer_messages" o) ELSE m.id END, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts + 1, m.crashes, COALESCE(NULLIF(r.errors, ''), m.errors), CAST(unixepoch('subsec') * 1000000 AS INTEGER), r.reason, m.group_key, m.steps, r.fingerprint,
  m.order_key, m.lane, m.rank, m.lane IS NOT NULL AND r.parks
FROM (SELECT value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason, value ->> 'f' AS fingerprint, value ->> 'p' AS parks FROM json_each('[{"c":6,"m":32,"o":"poison","d":0,"e":"","r":"attempts used up","p":true}]')) r JOIN "app_consumer_messages" m ON m.id = r.mid;

DELETE FROM "app_consumer_messages" WHERE id IN (SELECT value FROM json_each('[32]'));

COMMIT;
