BEGIN;

SET LOCAL idle_in_transaction_session_timeout = 5000;

SELECT set_config('jit', 'off', true), set_config('enable_bitmapscan', 'off', true);

WITH RECURSIVE taken(consumer, payload) AS (SELECT * FROM unnest('{"send-receipt","update-stock"}'::text[], '{"order.placed","order.placed"}'::text[])),
consumers(name, upto) AS (
  SELECT name, lead(name) OVER (ORDER BY name) FROM (SELECT '' AS name UNION SELECT consumer FROM taken) t
  UNION ALL
  SELECT CASE WHEN c.upto IS NULL THEN (SELECT MIN(m.consumer_type) FROM "app_consumer_messages" m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type > c.name)
    ELSE (SELECT MIN(m.consumer_type) FROM "app_consumer_messages" m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type > c.name AND m.consumer_type < c.upto) END, c.upto
  FROM consumers c WHERE c.name IS NOT NULL),
kinds(consumer, payload, upto) AS (
  SELECT consumer, payload, lead(payload) OVER (PARTITION BY consumer ORDER BY payload)
  FROM (SELECT name AS consumer, '' AS payload FROM consumers WHERE name <> '' UNION SELECT * FROM taken) t
  UNION ALL
  SELECT k.consumer, CASE WHEN k.upto IS NULL THEN (SELECT MIN(m.payload_type) FROM "app_consumer_messages" m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = k.consumer AND m.payload_type > k.payload)
    ELSE (SELECT MIN(m.payload_type) FROM "app_consumer_messages" m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = k.consumer AND m.payload_type > k.payload AND m.payload_type < k.upto) END, k.upto
  FROM kinds k WHERE k.payload IS NOT NULL)
SELECT consumer AS consumer_type, payload AS payload_type FROM kinds WHERE payload <> '' AND (consumer, payload) NOT IN (SELECT * FROM taken) ORDER BY 1, 2 LIMIT 20;

COMMIT;
