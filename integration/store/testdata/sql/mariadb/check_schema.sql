SELECT COALESCE(MAX(version), 0) FROM `app_asyncmonolith_migrations`;

SELECT crashes FROM `app_consumer_messages` WHERE 1 = 0;

SELECT message_ids FROM `app_message_claims` WHERE 1 = 0;

SELECT crashes FROM `app_poisoned_messages` WHERE 1 = 0;

SELECT run_at FROM `app_scheduled_messages` WHERE 1 = 0;

SELECT recent FROM `app_schedule_fires` WHERE 1 = 0;

SELECT paused_at FROM `app_paused_consumers` WHERE 1 = 0;

SELECT insert_id FROM `app_pending_insert_ids` WHERE 1 = 0;

SELECT leased_until FROM `app_message_slots` WHERE 1 = 0;

SELECT used_to FROM `app_message_rates` WHERE 1 = 0;

SELECT outcome FROM `app_message_stops` WHERE 1 = 0;

SELECT parks FROM `app_message_gates` WHERE 1 = 0;

SELECT open_until FROM `app_message_breakers` WHERE 1 = 0;

SELECT received_at FROM `app_inbox_messages` WHERE 1 = 0;

SELECT order_key FROM `app_message_lanes` WHERE 1 = 0;
