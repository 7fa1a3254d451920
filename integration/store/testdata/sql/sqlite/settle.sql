BEGIN;

UPDATE "app_message_claims" SET owner = owner WHERE id < 0;

SELECT id, solo, message_ids FROM "app_message_claims" WHERE id IN (SELECT value FROM json_each('[1,2]')) AND owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081';

UPDATE "app_message_claims" SET message_ids = '[3,5,8]', leased_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 30000000 WHERE id = 1;

DELETE FROM "app_consumer_messages" WHERE id IN (SELECT value FROM json_each('[4]'));

UPDATE "app_consumer_messages" AS m SET attempts = m.attempts + (r.outcome = 'failed'), crashes = 0,
  errors = COALESCE(NULLIF(r.errors, ''), m.errors), available_after = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + r.delay
FROM (SELECT value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason, value ->> 'f' AS fingerprint FROM json_each('[{"c":1,"m":1,"o":"failed","d":10000000,"e":"[{\"attempt\":1,\"error\":\"it''s \\\"bad\\\"\"}]","r":""}]')) r WHERE m.id = r.mid;

COMMIT;
