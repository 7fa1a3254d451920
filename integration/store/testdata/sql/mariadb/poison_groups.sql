SELECT MIN(consumer_type) FROM `app_poisoned_messages` WHERE consumer_type > '';

SELECT EXISTS (SELECT 1 FROM `app_poisoned_messages` WHERE consumer_type = 'update-stock' AND fingerprint IS NULL);

SELECT MIN(fingerprint) FROM `app_poisoned_messages` WHERE consumer_type = 'update-stock' AND fingerprint > '';

SELECT MIN(consumer_type) FROM `app_poisoned_messages` WHERE consumer_type > 'update-stock';

SELECT consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id FROM `app_message_failures` WHERE consumer_type = 'update-stock' AND fingerprint = '';

SELECT 'update-stock' AS consumer_type, '' AS fingerprint, (SELECT p.poisoned_at FROM `app_poisoned_messages` p WHERE p.consumer_type = 'update-stock' AND p.fingerprint IS NULL ORDER BY p.id DESC LIMIT 1) AS last_at;

SELECT 'update-stock' AS consumer_type, '' AS fingerprint, (SELECT p.poisoned_at FROM `app_poisoned_messages` p WHERE p.consumer_type = 'update-stock' AND p.fingerprint IS NULL ORDER BY p.id DESC LIMIT 1) AS last_at,
  (SELECT p.poisoned_at FROM `app_poisoned_messages` p WHERE p.consumer_type = 'update-stock' AND p.fingerprint IS NULL ORDER BY p.id LIMIT 1) AS first_at,
  (SELECT count(*) FROM (SELECT 1 AS one FROM `app_poisoned_messages` p WHERE p.consumer_type = 'update-stock' AND p.fingerprint IS NULL LIMIT 10000) x) AS messages;

SELECT consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id FROM `app_message_failures` WHERE consumer_type = 'c' AND fingerprint =
  (SELECT p.fingerprint FROM `app_poisoned_messages` p WHERE p.consumer_type = 'c' ORDER BY p.poisoned_at DESC LIMIT 1) UNION ALL SELECT consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id FROM `app_message_failures` WHERE consumer_type = 'd' AND fingerprint =
  (SELECT p.fingerprint FROM `app_poisoned_messages` p WHERE p.consumer_type = 'd' ORDER BY p.poisoned_at DESC LIMIT 1);
