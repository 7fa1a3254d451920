WITH gone AS (DELETE FROM "app_message_claims" WHERE id = ANY('{1,2}'::bigint[]) AND owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' RETURNING id, message_ids),
fin AS (DELETE FROM "app_consumer_messages" m USING (SELECT unnest(message_ids) AS id FROM gone) g WHERE m.id = g.id)
SELECT id, cardinality(message_ids) AS messages FROM gone;
