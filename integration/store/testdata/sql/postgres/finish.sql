SELECT name FROM pg_catalog.pg_prepared_statements WHERE name LIKE 'asyncmonolith%';

PREPARE asyncmonolith_finish_a767bfa83af0ccdd AS 
WITH live AS MATERIALIZED (SELECT c.id FROM (SELECT set_config('lock_timeout', '500ms', true) OFFSET 0) s, "app_message_claims" c WHERE c.id = ANY((SELECT $1::bigint[])::bigint[]) AND c.owner = $2 ORDER BY c.id FOR UPDATE OF c),
gone AS (DELETE FROM "app_message_claims" c USING live l WHERE c.id = l.id RETURNING c.id, c.message_ids),
fin AS (DELETE FROM "app_consumer_messages" m USING (SELECT unnest(message_ids) AS id FROM gone) g WHERE m.id = g.id)
SELECT id, cardinality(message_ids) AS messages FROM gone;

EXECUTE asyncmonolith_finish_a767bfa83af0ccdd('{1,2}', '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081');
