(SELECT 0 AS i, m.id, m.available_after, NULL AS held FROM `app_consumer_messages` m FORCE INDEX (app_consumer_messages_due)
WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = 'send-receipt' AND m.payload_type = 'order.placed' AND m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  AND (m.available_after > -9223372036854775808 OR (m.available_after = -9223372036854775808 AND m.id > 0)) AND NOT EXISTS (SELECT 1 FROM `app_paused_consumers` WHERE consumer_type = 'send-receipt')
ORDER BY m.available_after, m.id LIMIT 16) UNION ALL 
(SELECT 1 AS i, m.id, m.available_after, NULL AS held FROM `app_consumer_messages` m FORCE INDEX (app_consumer_messages_due)
WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = 'update-stock' AND m.payload_type = 'order.placed' AND m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  AND (m.available_after > 1767323045678901 OR (m.available_after = 1767323045678901 AND m.id > 1)) AND NOT EXISTS (SELECT 1 FROM `app_paused_consumers` WHERE consumer_type = 'update-stock')
ORDER BY m.available_after, m.id LIMIT 16) UNION ALL SELECT -1, id, 0, message_ids FROM `app_message_claims`;

SELECT DISTINCT LEAST(m.crashes, 2) AS kind, 0 AS value, NULL AS at, m.consumer_type AS consumer, m.payload_type AS payload FROM `app_consumer_messages` m FORCE INDEX (app_consumer_messages_due)
  WHERE m.keyed = FALSE AND m.crashes > 0 AND (m.consumer_type, m.payload_type) IN (('send-receipt', 'order.placed'),
  ('update-stock', 'order.placed')) AND m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
    AND m.id NOT IN (SELECT h.id FROM `app_message_claims` c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h) AND m.consumer_type NOT IN (SELECT consumer_type FROM `app_paused_consumers`)
UNION ALL SELECT 3, MIN(CASE WHEN leased_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + leased_for THEN -leased_for ELSE leased_until - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) END), NULL, '', '' FROM `app_message_claims` HAVING MIN(leased_until) IS NOT NULL
UNION ALL SELECT 5, 0, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), '', ''
UNION ALL SELECT 4, MIN(due) - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), NULL, '', '' FROM (SELECT (SELECT MIN(m.available_after) FROM `app_consumer_messages` m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = 'send-receipt' AND m.payload_type = 'order.placed'
  AND m.available_after > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS due FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `app_paused_consumers` WHERE consumer_type = 'send-receipt') UNION ALL SELECT (SELECT MIN(m.available_after) FROM `app_consumer_messages` m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = 'update-stock' AND m.payload_type = 'order.placed'
  AND m.available_after > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS due FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `app_paused_consumers` WHERE consumer_type = 'update-stock')) n HAVING MIN(due) IS NOT NULL;
