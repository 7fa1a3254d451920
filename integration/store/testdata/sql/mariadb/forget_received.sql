DELETE t FROM (SELECT receiver, hash FROM `app_inbox_messages` FORCE INDEX (app_inbox_messages_received) WHERE receiver = 'from-orders' AND received_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + -3600000000
  ORDER BY received_at LIMIT 1000 FOR UPDATE SKIP LOCKED) o STRAIGHT_JOIN `app_inbox_messages` t FORCE INDEX (PRIMARY) USING (receiver, hash);
