BEGIN;

SELECT s.previous, set_config('lock_timeout', '1s', true) AS now, set_config('idle_in_transaction_session_timeout', '15000ms', true) AS idle
FROM (SELECT current_setting('lock_timeout') AS previous OFFSET 0) s;

SELECT f.id, set_config('lock_timeout', '0', true) AS now FROM (
  SELECT m.id FROM "app_consumer_messages" m
  WHERE m.id = 5 AND m.attempts = 0 AND m.crashes = 0
    AND EXISTS (SELECT 1 FROM "app_message_claims" c WHERE c.id = 1 AND c.owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' AND m.id = ANY(c.message_ids))
  FOR UPDATE OF m) f;

COMMIT;
