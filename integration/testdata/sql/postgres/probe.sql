SELECT 0 AS kind, w.i AS value FROM unnest('{0,1}'::bigint[], '{"send-receipt","update-stock"}'::text[], '{"order.placed","order.placed"}'::text[]) w(i, consumer, payloads)
  CROSS JOIN LATERAL (
    SELECT 1 FROM "app_consumer_messages" m WHERE m.consumer_type = w.consumer AND m.payload_type = ANY(string_to_array(w.payloads, chr(31)))
      AND m.crashes = 0 AND m.available_after <= statement_timestamp() AND m.id NOT IN (SELECT unnest(message_ids) AS id FROM "app_message_claims" LIMIT 100000)
    ORDER BY m.available_after, m.id LIMIT 1) m
  WHERE w.consumer NOT IN (SELECT consumer_type FROM "app_paused_consumers")
UNION ALL SELECT DISTINCT LEAST(m.crashes, 2), 0 FROM "app_consumer_messages" m
  WHERE (m.consumer_type, m.payload_type) IN (SELECT * FROM unnest('{"send-receipt","update-stock"}'::text[], '{"order.placed","order.placed"}'::text[])) AND m.crashes > 0
    AND m.available_after <= statement_timestamp() AND m.id NOT IN (SELECT unnest(message_ids) AS id FROM "app_message_claims" LIMIT 100000) AND m.consumer_type NOT IN (SELECT consumer_type FROM "app_paused_consumers")
UNION ALL SELECT 3, 0 WHERE EXISTS (SELECT 1 FROM "app_message_claims" WHERE leased_until < statement_timestamp())
UNION ALL SELECT 4, (extract(epoch FROM min(n.available_after) - statement_timestamp()) * 1000000)::bigint
  FROM unnest('{"send-receipt","update-stock"}'::text[]) w(consumer) CROSS JOIN LATERAL (
    SELECT m.available_after FROM "app_consumer_messages" m WHERE m.consumer_type = w.consumer AND m.crashes = 0
      AND m.available_after > statement_timestamp() ORDER BY m.available_after LIMIT 1) n
  WHERE w.consumer NOT IN (SELECT consumer_type FROM "app_paused_consumers") HAVING count(*) > 0;
