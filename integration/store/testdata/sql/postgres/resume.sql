BEGIN;

SET LOCAL idle_in_transaction_session_timeout = 5000;

DELETE FROM "app_paused_consumers" WHERE consumer_type = 'update-stock';

COMMIT;
