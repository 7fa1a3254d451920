SELECT h.mid FROM (SELECT c.id AS claim_id, j.value AS mid FROM "app_message_claims" c, json_each(c.message_ids) j) h WHERE h.claim_id = 1;
