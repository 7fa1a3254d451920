SELECT x.consumer_type, x.payload_type, count(*) AS messages, SUM(x.conflict) AS conflicts, MIN(x.poisoned_at) AS oldest, MAX(x.poisoned_at) AS newest, MAX(x.id) AS last, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now
FROM (SELECT p.id, p.consumer_type, p.payload_type, p.poisoned_at,
    CASE WHEN p.insert_id IS NOT NULL AND (SELECT 1 FROM "app_consumer_messages" k WHERE k.insert_id = p.insert_id AND k.id IS NOT NULL AND (k.consumer_type = p.consumer_type OR p.consumer_type IN ('update-stock', 'stock') AND k.consumer_type IN ('update-stock', 'stock')) LIMIT 1) IS NOT NULL THEN 1 ELSE 0 END AS conflict
  FROM "app_poisoned_messages" p WHERE fingerprint IS NULL ORDER BY p.id LIMIT 100) x
GROUP BY x.consumer_type, x.payload_type ORDER BY x.consumer_type, x.payload_type;
