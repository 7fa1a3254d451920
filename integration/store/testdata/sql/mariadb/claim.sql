BEGIN;

(SELECT 0 AS i, m.id, m.available_after, NULL AS held FROM `app_consumer_messages` m FORCE INDEX (app_consumer_messages_due)
WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = 'send-receipt' AND m.payload_type = 'order.placed' AND m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  AND (m.available_after > -9223372036854775808 OR (m.available_after = -9223372036854775808 AND m.id > 0)) AND NOT EXISTS (SELECT 1 FROM `app_paused_consumers` WHERE consumer_type = 'send-receipt')
ORDER BY m.available_after, m.id LIMIT 16) UNION ALL 
(SELECT 1 AS i, m.id, m.available_after, NULL AS held FROM `app_consumer_messages` m FORCE INDEX (app_consumer_messages_due)
WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = 'update-stock' AND m.payload_type = 'order.placed' AND m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  AND (m.available_after > 1767323045678901 OR (m.available_after = 1767323045678901 AND m.id > 1)) AND NOT EXISTS (SELECT 1 FROM `app_paused_consumers` WHERE consumer_type = 'update-stock')
ORDER BY m.available_after, m.id LIMIT 16) UNION ALL SELECT -1, id, 0, message_ids FROM `app_message_claims`;

SELECT m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) AS size, OCTET_LENGTH(m.payload) AS text FROM JSON_TABLE('[3,1,5,4,6]', '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.keyed = FALSE AND m.crashes BETWEEN 0 AND 0 AND m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FOR UPDATE SKIP LOCKED;

SELECT h.id, '' AS paused FROM (SELECT h.id FROM `app_message_claims` c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h) h WHERE h.id IN (3, 1, 4, 5, 6)
UNION ALL SELECT 0, p.consumer_type FROM `app_paused_consumers` p;

INSERT INTO `app_message_claims` (owner, solo, claimed_at, leased_until, leased_for, message_ids)
VALUES ('0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081', FALSE, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 30000000, 30000000, '[3,1,4,5,6]');

COMMIT;

COMMIT;
