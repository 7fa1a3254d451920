BEGIN;

SELECT consumer_type, parks FROM `app_message_gates` FORCE INDEX (PRIMARY) WHERE consumer_type IN ('send-receipt') ORDER BY consumer_type FOR UPDATE;

/*M! SET STATEMENT optimizer_switch='derived_merge=on,materialization=on,in_to_exists=off,exists_to_in=off' FOR */ SELECT m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) AS size, OCTET_LENGTH(m.payload) AS text, m.order_key, m.lane, m.rank, TRUE AS due FROM (SELECT b.*, l.lane, l.rank, l.order_key
    FROM `app_consumer_messages` b FORCE INDEX (app_consumer_messages_due) STRAIGHT_JOIN `app_message_lanes` l FORCE INDEX (PRIMARY) ON l.id = b.id) m WHERE m.consumer_type = 'send-receipt' AND m.keyed = TRUE AND m.crashes > 0 AND m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND NOT EXISTS (SELECT 1 FROM `app_message_lanes` f WHERE f.consumer_type = m.consumer_type AND f.lane = m.lane AND f.lane IS NOT NULL AND f.rank < m.rank)
  AND NOT EXISTS (SELECT 1 FROM `app_paused_consumers` u WHERE u.consumer_type = m.consumer_type)
  AND m.crashes BETWEEN 1 AND 1 AND m.payload_type IN ('order.placed') AND m.lane NOT IN (SELECT h.lane FROM `app_message_claims` c, JSON_TABLE(c.lanes, '$[*]' COLUMNS (lane BIGINT PATH '$')) h WHERE c.consumer_type IN ('send-receipt')) AND NOT EXISTS (SELECT 1 FROM `app_poisoned_messages` p WHERE p.consumer_type IN ('send-receipt') AND p.lane = m.lane AND p.parks)
  AND NOT EXISTS (SELECT 1 FROM `app_paused_consumers` u WHERE u.consumer_type IN ('send-receipt')) ORDER BY m.rank LIMIT 8;

COMMIT;

COMMIT;
