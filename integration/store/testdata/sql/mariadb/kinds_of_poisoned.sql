SELECT * FROM (SELECT consumer_type, payload_type FROM `app_poisoned_messages` WHERE consumer_type = '' AND payload_type > '' ORDER BY payload_type LIMIT 1) a
UNION ALL
SELECT * FROM (SELECT consumer_type, payload_type FROM `app_poisoned_messages` WHERE consumer_type > '' ORDER BY consumer_type, payload_type LIMIT 1) b
ORDER BY 1, 2 LIMIT 1;

SELECT * FROM (SELECT consumer_type, payload_type FROM `app_poisoned_messages` WHERE consumer_type = 'update-stock' AND payload_type > 'order.placed' ORDER BY payload_type LIMIT 1) a
UNION ALL
SELECT * FROM (SELECT consumer_type, payload_type FROM `app_poisoned_messages` WHERE consumer_type > 'update-stock' ORDER BY consumer_type, payload_type LIMIT 1) b
ORDER BY 1, 2 LIMIT 1;
