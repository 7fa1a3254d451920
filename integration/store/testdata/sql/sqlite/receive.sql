BEGIN;

INSERT INTO "app_inbox_messages" (receiver, hash, received_at) SELECT 'from-orders', unhex(j.value), CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM json_each('["000102030405060708090a0b0c0d0e0f"]') j WHERE TRUE
ON CONFLICT (receiver, hash) DO NOTHING RETURNING lower(hex(hash));

COMMIT;
