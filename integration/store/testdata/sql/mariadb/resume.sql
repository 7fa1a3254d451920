BEGIN;

DELETE FROM `app_paused_consumers` WHERE consumer_type = 'update-stock';

COMMIT;

COMMIT;
