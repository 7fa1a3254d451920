SELECT name FROM pg_catalog.pg_prepared_statements WHERE name LIKE 'asyncmonolith%';

PREPARE asyncmonolith_extend_8f5f4359b658315e AS 
WITH live AS MATERIALIZED (SELECT id FROM "app_message_claims" WHERE owner = $1 ORDER BY id FOR UPDATE)
UPDATE "app_message_claims" c SET leased_until = statement_timestamp() + $2::bigint * interval '1 microsecond' FROM live l WHERE c.id = l.id RETURNING c.id;

EXECUTE asyncmonolith_extend_8f5f4359b658315e('0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081', 30000000);
