BEGIN;

INSERT INTO "app_paused_consumers" (consumer_type, paused_at, paused_by, note)
VALUES ('update-stock', CAST(unixepoch('subsec') * 1000000 AS INTEGER), 'ann', 'since the deploy')
ON CONFLICT (consumer_type) DO NOTHING;

COMMIT;
