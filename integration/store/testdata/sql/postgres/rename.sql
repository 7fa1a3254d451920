BEGIN;

SET LOCAL idle_in_transaction_session_timeout = 5000;

SELECT set_config('idle_in_transaction_session_timeout', '5000ms', true), set_config('statement_timeout', '5000ms', true), set_config('jit', 'off', true), set_config('enable_bitmapscan', 'off', true);

SELECT f.id, s.pid, s.begun, s.path, s.role, set_config('lock_timeout', s.previous, true) AS now
FROM (SELECT pg_backend_pid() AS pid, (extract(epoch FROM now()) * 1000000)::bigint AS begun,
    current_setting('search_path') AS path, current_setting('role') AS role, p.previous,
    set_config('lock_timeout', '1s', true) AS bounded, set_config('idle_in_transaction_session_timeout', '5000ms', true) AS idle
  FROM (SELECT current_setting('lock_timeout') AS previous OFFSET 0) p OFFSET 0) s
CROSS JOIN LATERAL (
  SELECT m.id FROM "app_consumer_messages" m
  JOIN unnest('{46,47}'::bigint[], '{0,0}'::int[], '{0,0}'::int[], '{8,8}'::bigint[]) AS w (id, attempts, crashes, claim)
    ON m.id = w.id AND m.attempts = w.attempts AND m.crashes = w.crashes
  WHERE s.bounded <> '' AND EXISTS (SELECT 1 FROM "app_message_claims" c WHERE c.id = w.claim AND c.owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' AND m.id = ANY(c.message_ids))
  ORDER BY m.id FOR UPDATE OF m SKIP LOCKED) f;

INSERT INTO "app_consumer_messages" (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after)
VALUES ('00000000-0000-0000-0000-000000000001', 'to-broker', '', '', NULL, 'order:4', statement_timestamp(), statement_timestamp())
ON CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO NOTHING RETURNING message_id;

DELETE FROM "app_consumer_messages" WHERE insert_id IS NOT NULL AND (insert_id, consumer_type) IN (VALUES ('order:4', 'to-broker'));

UPDATE "app_consumer_messages" SET consumer_type = 'to-broker', headers = CASE id WHEN 46 THEN '{"asyncmonolith-former-consumer":"charge-card"}' WHEN 47 THEN '{"asyncmonolith-former-consumer":"charge-card","tenant":"a"}' END WHERE id IN (46, 47);

COMMIT;
