WITH RECURSIVE types(consumer_type) AS (
  SELECT (SELECT MIN(consumer_type) FROM "app_consumer_messages" WHERE crashes = 0)
  UNION ALL
  SELECT (SELECT MIN(m.consumer_type) FROM "app_consumer_messages" m WHERE m.crashes = 0 AND m.consumer_type > t.consumer_type)
  FROM types t WHERE t.consumer_type IS NOT NULL)
SELECT DISTINCT t.consumer_type, m.payload_type FROM types t JOIN "app_consumer_messages" m ON m.id IN (
  SELECT h.id FROM "app_consumer_messages" h WHERE h.crashes = 0 AND h.consumer_type = t.consumer_type
  ORDER BY h.available_after, h.id LIMIT 100)
WHERE (t.consumer_type, m.payload_type) NOT IN (SELECT j.value ->> 0, j.value ->> 1 FROM json_each('[["send-receipt","order.placed"],["update-stock","order.placed"]]') j)
ORDER BY 1, 2 LIMIT 20;
