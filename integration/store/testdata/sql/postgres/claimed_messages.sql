SELECT h.mid FROM (SELECT c.id AS claim_id, u.mid FROM "app_message_claims" c CROSS JOIN LATERAL unnest(c.message_ids) u(mid)) h WHERE h.claim_id = 1;
