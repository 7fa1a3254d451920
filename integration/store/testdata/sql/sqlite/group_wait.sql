BEGIN;

INSERT INTO "app_message_groups" (name, id, messages, poisoned, created_at)
VALUES ('h', '00000000-0000-0000-0000-000000000000', '[{"id":"00000000-0000-0000-0000-000000000000","consumer":"ship","type":"p","payload":"{}"}]', NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (name) DO NOTHING;

SELECT id FROM "app_message_groups" WHERE name = 'h';

COMMIT;
