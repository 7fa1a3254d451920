SELECT p.id, p.consumer_type, p.payload_type, p.poisoned_at,
  CASE WHEN p.insert_id IS NOT NULL AND (SELECT 1 FROM `app_pending_insert_ids` k WHERE k.insert_id = p.insert_id AND k.id IS NOT NULL AND (k.consumer_type = p.consumer_type OR p.consumer_type IN ('update-stock', 'stock') AND k.consumer_type IN ('update-stock', 'stock')) LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END AS conflict,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now
FROM `app_poisoned_messages` p WHERE fingerprint IS NULL ORDER BY p.id LIMIT 100;
