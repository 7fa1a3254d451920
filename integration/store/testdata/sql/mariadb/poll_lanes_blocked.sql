/*M! SET STATEMENT optimizer_switch='derived_merge=on,materialization=on,in_to_exists=off,exists_to_in=off' FOR */ SELECT 0 AS look, 0 AS crashes, 0 AS next FROM DUAL WHERE EXISTS (SELECT 1 FROM (
SELECT f.lane, SUM(COUNT(*)) OVER (ORDER BY f.lane) > 5000 AS more FROM (
  SELECT l.lane FROM `app_message_lanes` l FORCE INDEX (app_message_lanes_lane) WHERE l.consumer_type = 'send-receipt' ORDER BY l.lane LIMIT 5001) f GROUP BY f.lane) w WHERE w.more OR (
  SELECT m.available_after <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND m.crashes = 0 AND m.payload_type IN ('order.placed') AND m.lane NOT IN (SELECT h.lane FROM `app_message_claims` c, JSON_TABLE(c.lanes, '$[*]' COLUMNS (lane BIGINT PATH '$')) h WHERE c.consumer_type IN ('send-receipt')) AND NOT EXISTS (SELECT 1 FROM `app_poisoned_messages` p WHERE p.consumer_type IN ('send-receipt') AND p.lane = m.lane AND p.parks)
  AND NOT EXISTS (SELECT 1 FROM `app_paused_consumers` u WHERE u.consumer_type IN ('send-receipt'))
  FROM (SELECT l.consumer_type, l.lane, l.rank, b.available_after, b.crashes, b.payload_type
    FROM `app_message_lanes` l FORCE INDEX (app_message_lanes_lane) STRAIGHT_JOIN `app_consumer_messages` b FORCE INDEX (PRIMARY) ON b.id = l.id) m WHERE m.consumer_type = 'send-receipt' AND m.lane = w.lane AND m.lane IS NOT NULL ORDER BY m.lane, m.rank LIMIT 1));
