SELECT MIN(consumer_type) FROM `app_consumer_messages` WHERE crashes = 0 AND consumer_type > '';

SELECT MIN(consumer_type) FROM `app_consumer_messages` WHERE crashes = 0 AND consumer_type > 'send-receipt';

(SELECT DISTINCT 'send-receipt' AS consumer_type, payload_type FROM (
  SELECT m.payload_type FROM `app_consumer_messages` m FORCE INDEX (app_consumer_messages_due) WHERE m.crashes = 0 AND m.consumer_type = 'send-receipt'
  ORDER BY m.available_after, m.id LIMIT 100) m) ORDER BY 1, 2;
