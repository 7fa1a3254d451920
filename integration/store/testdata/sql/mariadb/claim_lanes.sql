BEGIN;

SELECT consumer_type, parks FROM `app_message_gates` FORCE INDEX (PRIMARY) WHERE consumer_type IN ('send-receipt') ORDER BY consumer_type FOR UPDATE;

INSERT INTO `app_message_gates` (consumer_type, parks)
VALUES ('send-receipt', TRUE) ON DUPLICATE KEY UPDATE consumer_type = consumer_type;

SELECT consumer_type, parks FROM `app_message_gates` FORCE INDEX (PRIMARY) WHERE consumer_type IN ('send-receipt') ORDER BY consumer_type FOR UPDATE;

/*M! SET STATEMENT optimizer_switch='derived_merge=on,materialization=on,in_to_exists=off,exists_to_in=off' FOR */ 
SELECT w.lane, MIN(w.rank) AS first, MAX(w.rank) AS last, count(*) AS n FROM (
  SELECT f.lane, f.rank FROM (
    SELECT l.id, l.lane, l.rank FROM `app_message_lanes` l FORCE INDEX (app_message_lanes_ranked) WHERE l.consumer_type = 'send-receipt' AND l.rank > 0
      AND NOT EXISTS (SELECT 1 FROM `app_paused_consumers` u WHERE u.consumer_type = 'send-receipt') ORDER BY l.rank LIMIT 400) f
  STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = f.id
  WHERE m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND f.lane NOT IN (SELECT h.lane FROM `app_message_claims` c, JSON_TABLE(c.lanes, '$[*]' COLUMNS (lane BIGINT PATH '$')) h WHERE c.consumer_type IN ('send-receipt'))
    AND NOT EXISTS (SELECT 1 FROM `app_poisoned_messages` p WHERE p.consumer_type IN ('send-receipt') AND p.lane = f.lane AND p.parks) ORDER BY f.rank LIMIT 100) w
GROUP BY w.lane ORDER BY 2;

/*M! SET STATEMENT optimizer_switch='derived_merge=on,materialization=on,in_to_exists=off,exists_to_in=off' FOR */ SELECT count(*) AS n, COALESCE(MAX(f.rank), 0) AS last FROM (
  SELECT m.rank FROM (SELECT l.consumer_type, l.rank, TRUE AS keyed FROM `app_message_lanes` l FORCE INDEX (app_message_lanes_ranked)) m WHERE m.consumer_type = 'send-receipt' AND m.keyed = TRUE AND m.rank > 0
    AND NOT EXISTS (SELECT 1 FROM `app_paused_consumers` u WHERE u.consumer_type = 'send-receipt') ORDER BY m.rank LIMIT 400) f;

/*M! SET STATEMENT optimizer_switch='derived_merge=on,materialization=on,in_to_exists=off,exists_to_in=off' FOR */ 
SELECT m.id, m.message_id, m.consumer_type, m.payload_type, CASE WHEN (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) <= 4096 THEN m.payload END AS payload, CASE WHEN (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) <= 4096 THEN m.headers END AS headers, m.insert_id,
	m.created_at, m.available_after, m.attempts, m.crashes, CASE WHEN (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) <= 4096 THEN m.errors END AS errors, m.group_key, (OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0) + COALESCE(OCTET_LENGTH(m.errors), 0)) AS size, OCTET_LENGTH(m.payload) AS text, k.order_key, k.lane, k.rank, m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS due
FROM ((SELECT 0 AS o, l.id FROM `app_message_lanes` l FORCE INDEX (app_message_lanes_lane)
WHERE l.consumer_type = 'send-receipt' AND l.lane = 8087929771573949676 ORDER BY l.lane, l.rank LIMIT 5)) h STRAIGHT_JOIN `app_message_lanes` k FORCE INDEX (PRIMARY) ON k.id = h.id STRAIGHT_JOIN `app_consumer_messages` m FORCE INDEX (PRIMARY) ON m.id = k.id
WHERE k.lane NOT IN (SELECT h.lane FROM `app_message_claims` c, JSON_TABLE(c.lanes, '$[*]' COLUMNS (lane BIGINT PATH '$')) h WHERE c.consumer_type IN ('send-receipt')) AND NOT EXISTS (SELECT 1 FROM `app_poisoned_messages` p WHERE p.consumer_type IN ('send-receipt') AND p.lane = k.lane AND p.parks)
  AND NOT EXISTS (SELECT 1 FROM `app_paused_consumers` u WHERE u.consumer_type IN ('send-receipt')) ORDER BY h.o, k.rank;

INSERT INTO `app_message_claims` (owner, solo, claimed_at, leased_until, leased_for, consumer_type, message_ids, lanes)
VALUES ('0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081', FALSE, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 60000000, 60000000, 'send-receipt', '[21,22]', '[8087929771573949676,8087929771573949676]');

COMMIT;

COMMIT;
