DELETE FROM "app_message_claims" WHERE id = ANY('{1,2}'::bigint[]) AND owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081';
