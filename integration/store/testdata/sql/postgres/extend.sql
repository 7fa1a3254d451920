WITH live AS MATERIALIZED (SELECT id FROM "app_message_claims" WHERE owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' ORDER BY id FOR UPDATE)
UPDATE "app_message_claims" c SET leased_until = statement_timestamp() + 30000000 * interval '1 microsecond' FROM live l WHERE c.id = l.id RETURNING c.id;
