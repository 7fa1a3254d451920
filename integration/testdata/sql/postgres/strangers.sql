WITH RECURSIVE types AS (
  (SELECT consumer_type FROM "app_consumer_messages" WHERE crashes = 0 ORDER BY consumer_type LIMIT 1)
  UNION ALL
  SELECT (SELECT m.consumer_type FROM "app_consumer_messages" m WHERE m.crashes = 0 AND m.consumer_type > t.consumer_type
    ORDER BY m.consumer_type LIMIT 1) FROM types t WHERE t.consumer_type IS NOT NULL)
SELECT DISTINCT t.consumer_type, m.payload_type FROM types t CROSS JOIN LATERAL (
  SELECT m.payload_type FROM "app_consumer_messages" m WHERE m.crashes = 0 AND m.consumer_type = t.consumer_type
  ORDER BY m.available_after, m.id LIMIT 100) m
WHERE (t.consumer_type, m.payload_type) NOT IN (SELECT * FROM unnest('{"send-receipt","update-stock"}'::text[], '{"order.placed","order.placed"}'::text[]))
ORDER BY 1, 2 LIMIT 20;
