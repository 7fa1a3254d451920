SELECT name FROM "app_message_groups" WHERE name IN ('g') ORDER BY name;

INSERT INTO "app_consumer_messages" (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, group_key)
VALUES ('00000000-0000-0000-0000-000000000000', 'ship', 'p', '{}', NULL, NULL, statement_timestamp(), statement_timestamp(), 'g');
