BEGIN;

SELECT id, message_id, consumer_type, payload_type, insert_id FROM "app_poisoned_messages" WHERE TRUE ORDER BY id LIMIT 10 FOR UPDATE;

INSERT INTO "app_consumer_messages"
		(message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, steps, order_key, lane, rank, group_key)
		SELECT p.message_id, p.consumer, p.payload_type, p.payload, REPLACE(p.headers, '"asyncmonolith-deliver-by":', '"asyncmonolith-lifted-deliver-by":'), p.insert_id, p.created_at, statement_timestamp(), p.steps, p.order_key, p.lane, p.rank, p.group_key
		FROM (SELECT CASE p.consumer_type WHEN 'update-stock' THEN 'renamed' ELSE p.consumer_type END AS consumer, p.message_id, p.payload_type, p.payload, p.headers, p.insert_id, p.created_at, p.steps, p.order_key, p.lane, p.rank, p.group_key FROM "app_poisoned_messages" p WHERE p.id IN (20)) p
		WHERE TRUE ORDER BY p.insert_id COLLATE "C", p.consumer COLLATE "C"
		ON CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO NOTHING RETURNING id, message_id, insert_id, consumer_type;

DELETE FROM "app_poisoned_messages" WHERE id IN (SELECT id FROM "app_poisoned_messages" WHERE id IN (20) ORDER BY id FOR UPDATE);

COMMIT;
