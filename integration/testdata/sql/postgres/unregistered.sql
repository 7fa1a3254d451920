WITH RECURSIVE kinds(consumer_type, payload_type) AS (
  SELECT * FROM (SELECT m.consumer_type, m.payload_type FROM "app_consumer_messages" m WHERE m.crashes = 0 ORDER BY m.consumer_type, m.payload_type LIMIT 1) first
  UNION ALL
  SELECT m.consumer_type, m.payload_type FROM kinds k JOIN "app_consumer_messages" m ON m.id = (
    SELECT n.id FROM "app_consumer_messages" n WHERE n.crashes = 0 AND (n.consumer_type, n.payload_type) > (k.consumer_type, k.payload_type)
    ORDER BY n.consumer_type, n.payload_type LIMIT 1))
SELECT * FROM kinds k WHERE (k.consumer_type, k.payload_type) NOT IN (SELECT * FROM unnest('{"send-receipt","update-stock"}'::text[], '{"order.placed","order.placed"}'::text[])) ORDER BY 1, 2 LIMIT 20;
