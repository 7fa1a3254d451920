WITH RECURSIVE types(name) AS (SELECT (SELECT MIN(consumer_type) FROM `app_consumer_messages` WHERE crashes = 0) UNION ALL
  SELECT (SELECT MIN(m.consumer_type) FROM `app_consumer_messages` m WHERE m.crashes = 0 AND m.consumer_type > t.name) FROM types t WHERE t.name IS NOT NULL)
SELECT name FROM types WHERE name IS NOT NULL;

(SELECT DISTINCT 'send-receipt' AS consumer_type, payload_type FROM (
  SELECT m.payload_type FROM `app_consumer_messages` m FORCE INDEX (app_consumer_messages_due) WHERE m.crashes = 0 AND m.consumer_type = 'send-receipt'
  ORDER BY m.available_after, m.id LIMIT 100) m) ORDER BY 1, 2;
