UPDATE "app_consumer_messages" SET id = id WHERE id = 5 RETURNING id;
