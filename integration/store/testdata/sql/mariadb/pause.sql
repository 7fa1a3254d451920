BEGIN;

INSERT INTO `app_paused_consumers` (consumer_type, paused_at, paused_by, note)
VALUES ('update-stock', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 'ann', 'since the deploy') ON DUPLICATE KEY UPDATE consumer_type = consumer_type;

COMMIT;

COMMIT;
