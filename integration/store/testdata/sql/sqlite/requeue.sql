BEGIN;

UPDATE "app_consumer_messages" SET id = id WHERE id < 0;

SELECT id, message_id, consumer_type, payload_type, insert_id FROM "app_poisoned_messages" WHERE TRUE ORDER BY id LIMIT 10;

INSERT INTO "app_consumer_messages"
		(message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, steps, order_key, lane, rank, group_key)
		SELECT p.message_id, p.consumer, p.payload_type, p.payload, REPLACE(p.headers, '"asyncmonolith-deliver-by":', '"asyncmonolith-lifted-deliver-by":'), p.insert_id, p.created_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER), p.steps, p.order_key, p.lane, p.rank, p.group_key
		FROM (SELECT CASE p.consumer_type WHEN 'update-stock' THEN 'renamed' ELSE p.consumer_type END AS consumer, p.message_id, p.payload_type, p.payload, p.headers, p.insert_id, p.created_at, p.steps, p.order_key, p.lane, p.rank, p.group_key FROM "app_poisoned_messages" p WHERE p.id IN (20)) p
		WHERE TRUE ORDER BY p.insert_id, p.consumer
		ON CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO NOTHING RETURNING id, message_id, insert_id, consumer_type;

DELETE FROM "app_poisoned_messages" WHERE id IN (20);

COMMIT;
