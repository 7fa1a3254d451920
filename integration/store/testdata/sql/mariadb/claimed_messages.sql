SELECT h.mid FROM (SELECT c.id AS claim_id, h.id AS mid FROM `app_message_claims` c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h) h WHERE h.claim_id = 1;
