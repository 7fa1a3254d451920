BEGIN;

SELECT LOWER(HEX(hash)) FROM `app_inbox_messages` WHERE receiver = 'from-orders' AND hash IN (UNHEX('000102030405060708090a0b0c0d0e0f'));

SAVEPOINT asyncmonolith_inbox;

INSERT IGNORE INTO `app_inbox_messages` (receiver, hash, received_at)
VALUES ('from-orders', UNHEX('000102030405060708090a0b0c0d0e0f'), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));

COMMIT;
