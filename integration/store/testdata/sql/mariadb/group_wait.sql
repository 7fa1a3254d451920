BEGIN;

INSERT INTO `app_message_groups` (name, id, messages, poisoned, created_at)
VALUES ('h', '00000000-0000-0000-0000-000000000000', '[{"id":"00000000-0000-0000-0000-000000000000","consumer":"ship","type":"p","payload":"{}"}]', NULL, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE name = name;

SELECT id FROM `app_message_groups` WHERE name = 'h';

COMMIT;
