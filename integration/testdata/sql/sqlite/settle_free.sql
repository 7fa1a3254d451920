BEGIN;

UPDATE "app_message_claims" SET owner = owner WHERE id < 0;

UPDATE "app_message_claims" SET leased_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 60000000 WHERE id IN (SELECT value FROM json_each('[4]')) AND owner = 'settler' RETURNING id;

SELECT r.cid AS claim, r.mid AS message FROM (SELECT value ->> 'c' AS cid, value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each('[{"c":4,"m":24,"o":"done","d":0,"e":"","r":""}]')) r
JOIN "app_message_claims" c ON c.id = r.cid AND c.owner = 'settler' JOIN json_each(c.message_ids) j ON j.value = r.mid;

DELETE FROM "app_consumer_messages" WHERE id IN (SELECT mid FROM (SELECT value ->> 'c' AS cid, value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each('[{"c":4,"m":24,"o":"done","d":0,"e":"","r":""}]')) r WHERE outcome = 'done');

INSERT INTO "app_poisoned_messages" (id, message_id, consumer_type, payload_type, payload, headers, insert_id,
	created_at, available_after, attempts, crashes, errors, poisoned_at, reason)
	SELECT m.id, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
	  m.available_after, m.attempts + 1, m.crashes, COALESCE(NULLIF(r.errors, ''), m.errors), CAST(unixepoch('subsec') * 1000000 AS INTEGER), r.reason
	FROM (SELECT value ->> 'c' AS cid, value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each('[{"c":4,"m":24,"o":"done","d":0,"e":"","r":""}]')) r JOIN "app_consumer_messages" m ON m.id = r.mid WHERE r.outcome = 'poison';

DELETE FROM "app_consumer_messages" WHERE id IN (SELECT mid FROM (SELECT value ->> 'c' AS cid, value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each('[{"c":4,"m":24,"o":"done","d":0,"e":"","r":""}]')) r WHERE outcome = 'poison');

UPDATE "app_consumer_messages" AS m SET attempts = m.attempts + (r.outcome = 'failed'), crashes = 0,
	  errors = COALESCE(NULLIF(r.errors, ''), m.errors), available_after = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + r.delay
	FROM (SELECT value ->> 'c' AS cid, value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each('[{"c":4,"m":24,"o":"done","d":0,"e":"","r":""}]')) r WHERE m.id = r.mid AND r.outcome IN ('failed', 'snooze');

DELETE FROM "app_message_claims" AS c WHERE id IN (SELECT cid FROM (SELECT value ->> 'c' AS cid, value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each('[{"c":4,"m":24,"o":"done","d":0,"e":"","r":""}]')) r)
	AND NOT EXISTS (SELECT 1 FROM json_each(c.message_ids) j WHERE j.value NOT IN (SELECT mid FROM (SELECT value ->> 'c' AS cid, value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each('[{"c":4,"m":24,"o":"done","d":0,"e":"","r":""}]')) r));

UPDATE "app_message_claims" AS c SET message_ids = (
	  SELECT json_group_array(j.value) FROM json_each(c.message_ids) j WHERE j.value NOT IN (SELECT mid FROM (SELECT value ->> 'c' AS cid, value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each('[{"c":4,"m":24,"o":"done","d":0,"e":"","r":""}]')) r))
	WHERE id IN (SELECT cid FROM (SELECT value ->> 'c' AS cid, value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each('[{"c":4,"m":24,"o":"done","d":0,"e":"","r":""}]')) r);

COMMIT;
