BEGIN;

SET LOCAL idle_in_transaction_session_timeout = 5000;

SELECT set_config('jit', 'off', true), set_config('enable_bitmapscan', 'off', true);

SELECT 0 AS look, 0 AS crashes, 0 AS next WHERE EXISTS (SELECT 1 FROM (
WITH RECURSIVE walk(lane, step) AS (
  SELECT CAST(0 AS bigint), 0
  UNION ALL
  SELECT (SELECT MIN(m.lane) FROM "app_consumer_messages" m WHERE m.consumer_type = 'send-receipt' AND m.lane IS NOT NULL AND m.lane > w.lane), w.step + 1
  FROM walk w WHERE w.lane IS NOT NULL AND w.step <= 500)
SELECT w.lane, w.step > 500 AS more FROM walk w WHERE w.lane IS NOT NULL) w WHERE w.more OR (
  SELECT m.available_after <= statement_timestamp() AND m.crashes = 0 AND m.payload_type IN ('order.placed') AND m.lane NOT IN (SELECT unnest(c.lanes) AS lane FROM "app_message_claims" c WHERE c.consumer_type = ANY('{"send-receipt"}'::text[])) AND NOT EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.consumer_type = ANY('{"send-receipt"}'::text[]) AND p.lane = m.lane AND p.parks)
  AND NOT EXISTS (SELECT 1 FROM "app_paused_consumers" u WHERE u.consumer_type = ANY('{"send-receipt"}'::text[]))
  FROM "app_consumer_messages" m WHERE m.consumer_type = 'send-receipt' AND m.lane = w.lane AND m.lane IS NOT NULL ORDER BY m.lane, m.rank LIMIT 1));

COMMIT;
