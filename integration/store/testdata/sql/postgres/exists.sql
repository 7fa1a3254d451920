SELECT id FROM "app_consumer_messages" WHERE id = 5 FOR UPDATE;
