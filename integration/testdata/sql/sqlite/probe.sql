SELECT 0 AS kind, w.key AS value FROM json_each('[["send-receipt",["order.placed"]],["update-stock",["order.placed"]]]') w WHERE EXISTS (
  SELECT 1 FROM "app_consumer_messages" m WHERE m.consumer_type = w.value ->> 0
    AND m.payload_type IN (SELECT value FROM json_each(w.value -> 1)) AND m.crashes = 0
    AND m.available_after <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND m.id NOT IN (SELECT j.value AS id FROM "app_message_claims" c, json_each(c.message_ids) j))
  AND w.value ->> 0 NOT IN (SELECT consumer_type FROM "app_paused_consumers")
UNION ALL SELECT DISTINCT MIN(m.crashes, 2), 0 FROM "app_consumer_messages" m
  WHERE (m.consumer_type, m.payload_type) IN (SELECT j.value ->> 0, j.value ->> 1 FROM json_each('[["send-receipt","order.placed"],["update-stock","order.placed"]]') j) AND m.crashes > 0
    AND m.available_after <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND m.id NOT IN (SELECT j.value AS id FROM "app_message_claims" c, json_each(c.message_ids) j) AND m.consumer_type NOT IN (SELECT consumer_type FROM "app_paused_consumers")
UNION ALL SELECT 3, 0 WHERE EXISTS (SELECT 1 FROM "app_message_claims" WHERE leased_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER))
UNION ALL SELECT 4, MIN(due) - CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM (SELECT (
    SELECT m.available_after FROM "app_consumer_messages" m WHERE m.consumer_type = w.value ->> 0 AND m.crashes = 0
      AND m.available_after > CAST(unixepoch('subsec') * 1000000 AS INTEGER) ORDER BY m.available_after LIMIT 1) AS due FROM json_each('[["send-receipt",["order.placed"]],["update-stock",["order.placed"]]]') w
    WHERE w.value ->> 0 NOT IN (SELECT consumer_type FROM "app_paused_consumers")) HAVING MIN(due) IS NOT NULL;
