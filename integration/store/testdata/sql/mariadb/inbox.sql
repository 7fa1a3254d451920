SELECT (SELECT count(*) FROM (SELECT 1 FROM `app_inbox_messages` WHERE receiver = 'from-orders' ORDER BY received_at LIMIT 10000) i) AS hashes,
(SELECT MIN(received_at) FROM `app_inbox_messages` WHERE receiver = 'from-orders') AS oldest, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now;
