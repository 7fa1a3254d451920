BEGIN;

SET LOCAL idle_in_transaction_session_timeout = 5000;

INSERT INTO "app_paused_consumers" (consumer_type, paused_at, paused_by, note)
VALUES ('update-stock', statement_timestamp(), 'ann', 'since the deploy')
ON CONFLICT (consumer_type) DO NOTHING;

COMMIT;
