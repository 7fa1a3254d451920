WITH live AS MATERIALIZED (SELECT id FROM "app_message_claims" WHERE id = ANY('{1,2}'::bigint[]) AND owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' ORDER BY id FOR UPDATE)
DELETE FROM "app_message_claims" c USING live l WHERE c.id = l.id;
