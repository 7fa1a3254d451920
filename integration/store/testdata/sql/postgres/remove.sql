DELETE FROM "app_consumer_messages" WHERE id IN (5);
