SELECT MIN(consumer_type) FROM `app_consumer_messages` WHERE keyed = FALSE AND crashes = 0 AND consumer_type > '';

SELECT MIN(consumer_type) FROM `app_consumer_messages` WHERE keyed = FALSE AND crashes = 0 AND consumer_type > 'send-receipt';

SELECT MIN(payload_type) FROM `app_consumer_messages` WHERE keyed = FALSE AND crashes = 0 AND consumer_type = 'send-receipt' AND payload_type > '';

SELECT MIN(payload_type) FROM `app_consumer_messages` WHERE keyed = FALSE AND crashes = 0 AND consumer_type = 'send-receipt' AND payload_type > 'order.placed';
