SELECT count(*) FROM (SELECT 1 FROM `app_consumer_messages` m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = 'send-receipt'
  UNION ALL SELECT 1 FROM `app_message_lanes` m WHERE m.consumer_type = 'send-receipt' AND m.lane IS NOT NULL LIMIT 100001) w;
