SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'innodb_doublewrite');

SHOW GLOBAL STATUS WHERE Variable_name = 'Threads_connected';

SHOW GLOBAL VARIABLES WHERE Variable_name = 'max_connections';

SELECT DISTINCT s.INDEX_NAME AS name, TRUE AS valid FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = DATABASE();

SHOW GLOBAL STATUS WHERE Variable_name = 'Innodb_history_list_length';

SELECT 'transaction' AS kind, t.trx_mysql_thread_id AS pid, '' AS name, 0 AS behind,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + TIMESTAMPDIFF(MICROSECOND, t.trx_started, CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM')) AS micros
FROM information_schema.INNODB_TRX t WHERE t.trx_mysql_thread_id <> CONNECTION_ID() ORDER BY t.trx_started LIMIT 20;
