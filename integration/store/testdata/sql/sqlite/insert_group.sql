INSERT INTO "app_consumer_messages" (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, group_key)
VALUES ('00000000-0000-0000-0000-000000000000', 'ship', 'p', '{}', NULL, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), 'g');
