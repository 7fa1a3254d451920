SELECT DISTINCT consumer_type, payload_type FROM "app_poisoned_messages" WHERE consumer_type = 'send-receipt';
