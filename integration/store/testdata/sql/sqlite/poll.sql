SELECT 0 AS kind, w.key AS value, m.id, m.available_after AS at FROM json_each('[["send-receipt","order.placed",-9223372036854775808,0],["update-stock","order.placed",1767323045678901,1]]') w JOIN "app_consumer_messages" m ON m.id = (
  SELECT d.id FROM "app_consumer_messages" d WHERE d.consumer_type = w.value ->> 0 AND d.payload_type = w.value ->> 1 AND d.keyed = FALSE AND d.crashes = 0
    AND d.available_after <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND (d.available_after, d.id) > (w.value ->> 2, w.value ->> 3) AND d.id NOT IN (SELECT j.value AS id FROM "app_message_claims" c, json_each(c.message_ids) j)
  ORDER BY d.available_after, d.id LIMIT 1)
WHERE w.value ->> 0 NOT IN (SELECT consumer_type FROM "app_paused_consumers")
UNION ALL SELECT DISTINCT MIN(m.crashes, 2), j.key, 0, NULL FROM json_each('[["send-receipt","order.placed"],["update-stock","order.placed"]]') j
  CROSS JOIN "app_consumer_messages" m ON m.consumer_type = j.value ->> 0 AND m.payload_type = j.value ->> 1 AND m.keyed = FALSE AND m.crashes > 0
  WHERE m.available_after <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND m.id NOT IN (SELECT j.value AS id FROM "app_message_claims" c, json_each(c.message_ids) j) AND m.consumer_type NOT IN (SELECT consumer_type FROM "app_paused_consumers")
UNION ALL SELECT 3, MIN(CASE WHEN leased_until > CAST(unixepoch('subsec') * 1000000 AS INTEGER) + leased_for THEN -leased_for ELSE leased_until - CAST(unixepoch('subsec') * 1000000 AS INTEGER) END), 0, NULL FROM "app_message_claims" HAVING MIN(leased_until) IS NOT NULL
UNION ALL SELECT 5, 0, 0, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
UNION ALL SELECT 4, MIN(due) - CAST(unixepoch('subsec') * 1000000 AS INTEGER), 0, NULL FROM (SELECT (
    SELECT m.available_after FROM "app_consumer_messages" m WHERE m.consumer_type = w.value ->> 0 AND m.payload_type = w.value ->> 1 AND m.keyed = FALSE AND m.crashes = 0
      AND m.available_after > CAST(unixepoch('subsec') * 1000000 AS INTEGER) ORDER BY m.available_after LIMIT 1) AS due FROM json_each('[["send-receipt","order.placed"],["update-stock","order.placed"]]') w
    WHERE w.value ->> 0 NOT IN (SELECT consumer_type FROM "app_paused_consumers")) HAVING MIN(due) IS NOT NULL;
