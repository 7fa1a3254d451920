WITH RECURSIVE walk(consumer, print, n) AS (SELECT (SELECT MIN(p.consumer_type) FROM "app_poisoned_messages" p), '', 0 UNION ALL
  SELECT CASE WHEN (SELECT MIN(p.fingerprint) FROM "app_poisoned_messages" p WHERE p.consumer_type = w.consumer AND p.fingerprint > w.print) IS NULL THEN (SELECT MIN(p.consumer_type) FROM "app_poisoned_messages" p WHERE p.consumer_type > w.consumer) ELSE w.consumer END, COALESCE((SELECT MIN(p.fingerprint) FROM "app_poisoned_messages" p WHERE p.consumer_type = w.consumer AND p.fingerprint > w.print), ''), w.n + 1
  FROM walk w WHERE w.consumer IS NOT NULL AND w.n < 500)
SELECT w.consumer AS consumer_type, w.print AS fingerprint FROM walk w WHERE w.consumer IS NULL
  OR w.print <> '' OR EXISTS (SELECT 1 FROM "app_poisoned_messages" p WHERE p.consumer_type = w.consumer AND p.fingerprint IS NULL);

SELECT consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id FROM "app_message_failures" WHERE consumer_type = 'update-stock' AND fingerprint = '';

SELECT 'update-stock' AS consumer_type, '' AS fingerprint, (SELECT p.poisoned_at FROM "app_poisoned_messages" p WHERE p.consumer_type = 'update-stock' AND p.fingerprint IS NULL ORDER BY p.id DESC LIMIT 1) AS last_at;

SELECT 'update-stock' AS consumer_type, '' AS fingerprint, (SELECT p.poisoned_at FROM "app_poisoned_messages" p WHERE p.consumer_type = 'update-stock' AND p.fingerprint IS NULL ORDER BY p.id DESC LIMIT 1) AS last_at,
  (SELECT p.poisoned_at FROM "app_poisoned_messages" p WHERE p.consumer_type = 'update-stock' AND p.fingerprint IS NULL ORDER BY p.id LIMIT 1) AS first_at,
  (SELECT count(*) FROM (SELECT 1 AS one FROM "app_poisoned_messages" p WHERE p.consumer_type = 'update-stock' AND p.fingerprint IS NULL LIMIT 10000) x) AS messages;

SELECT consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id FROM "app_message_failures" WHERE consumer_type = 'c' AND fingerprint =
  (SELECT p.fingerprint FROM "app_poisoned_messages" p WHERE p.consumer_type = 'c' ORDER BY p.poisoned_at DESC LIMIT 1) UNION ALL SELECT consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id FROM "app_message_failures" WHERE consumer_type = 'd' AND fingerprint =
  (SELECT p.fingerprint FROM "app_poisoned_messages" p WHERE p.consumer_type = 'd' ORDER BY p.poisoned_at DESC LIMIT 1);
