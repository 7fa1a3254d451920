BEGIN;

INSERT INTO "app_inbox_messages" (receiver, hash, received_at) SELECT 'from-orders', decode(u.hash, 'hex'), statement_timestamp() FROM unnest('{"000102030405060708090a0b0c0d0e0f"}'::text[]) u(hash)
ON CONFLICT (receiver, hash) DO NOTHING RETURNING encode(hash, 'hex');

COMMIT;
