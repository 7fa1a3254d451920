BEGIN;

INSERT INTO "app_paused_consumers" (consumer_type, paused_at)
VALUES ('update-stock', statement_timestamp())
ON CONFLICT (consumer_type) DO NOTHING;

COMMIT;
