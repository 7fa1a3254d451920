DELETE FROM "app_consumer_messages" WHERE id = 5;
