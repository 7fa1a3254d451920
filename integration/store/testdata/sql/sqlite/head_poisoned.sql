SELECT id, message_id, consumer_type, payload_type, insert_id, created_at, available_after, attempts, crashes, poisoned_at, reason, fingerprint, order_key, parks, headers, errors,
	substr(payload, 1, 100) AS payload, COALESCE(length(CAST(payload AS BLOB)), 0) AS payload_bytes FROM "app_poisoned_messages" WHERE id = 1;
