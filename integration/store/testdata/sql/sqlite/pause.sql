BEGIN;

INSERT INTO "app_paused_consumers" (consumer_type, paused_at)
VALUES ('update-stock', CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (consumer_type) DO NOTHING;

COMMIT;
