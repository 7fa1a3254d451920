BEGIN;

SET LOCAL idle_in_transaction_session_timeout = 5000;

SELECT DISTINCT consumer_type FROM "app_consumer_messages" WHERE id IN (16, 99) AND keyed = TRUE ORDER BY consumer_type;

SELECT set_config('idle_in_transaction_session_timeout', '5s', true), set_config('statement_timeout', '5s', true),
	set_config('work_mem', '16MB', true), set_config('jit', 'off', true);

SELECT id, current_setting('transaction_isolation') AS isolation FROM "app_consumer_messages"
	WHERE id IN (16, 99) AND id NOT IN (SELECT unnest(message_ids) AS id FROM "app_message_claims" LIMIT 100000) ORDER BY id FOR UPDATE SKIP LOCKED;

DELETE FROM "app_consumer_messages" WHERE id IN (16) AND id NOT IN (SELECT mid FROM (SELECT c.id AS claim_id, u.mid FROM "app_message_claims" c CROSS JOIN LATERAL unnest(c.message_ids) u(mid)) h)
RETURNING id, payload_type;

SELECT id FROM "app_consumer_messages" WHERE id IN (99) ORDER BY id;

COMMIT;
