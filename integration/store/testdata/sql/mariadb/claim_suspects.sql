BEGIN;

SELECT 0 AS i, m.id, m.available_after FROM `app_consumer_messages` m FORCE INDEX (app_consumer_messages_due)
WHERE m.keyed = FALSE AND m.crashes BETWEEN 1 AND 1 AND (m.consumer_type, m.payload_type) IN (('send-receipt', 'order.placed'),
  ('update-stock', 'order.placed')) AND m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  AND m.id NOT IN (SELECT h.id FROM `app_message_claims` c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h) AND m.consumer_type NOT IN (SELECT consumer_type FROM `app_paused_consumers`)
ORDER BY m.available_after, m.id LIMIT 8;

COMMIT;

COMMIT;
