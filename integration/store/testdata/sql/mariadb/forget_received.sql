DELETE FROM `app_inbox_messages` WHERE receiver = 'from-orders' AND received_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + -3600000000 ORDER BY received_at LIMIT 1000;
