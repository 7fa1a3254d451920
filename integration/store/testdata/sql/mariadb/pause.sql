BEGIN;

INSERT INTO `app_paused_consumers` (consumer_type, paused_at)
VALUES ('update-stock', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE consumer_type = consumer_type;

COMMIT;

COMMIT;
