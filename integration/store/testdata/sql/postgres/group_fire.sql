BEGIN;

SELECT name FROM "app_message_groups" WHERE name = 'h' FOR UPDATE SKIP LOCKED;

SELECT g.messages, g.poisoned, EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.group_key = g.name) AS hurt
FROM "app_message_groups" g WHERE g.name = 'h' AND NOT EXISTS (SELECT 1 FROM "app_consumer_messages" m WHERE m.group_key = g.name)
  AND (g.poisoned IS NOT NULL OR NOT EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.group_key = g.name));

DELETE FROM "app_message_groups" WHERE name = 'h';

INSERT INTO "app_consumer_messages" (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after)
VALUES ('00000000-0000-0000-0000-000000000000', 'ship', 'p', '{}', NULL, NULL, statement_timestamp(), statement_timestamp());

COMMIT;
