SELECT name, setting AS value FROM pg_catalog.pg_settings
  WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum') AND setting = 'off' ORDER BY name;

SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datid IS NOT NULL AND backend_type IS DISTINCT FROM 'autovacuum worker'),
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int - COALESCE(current_setting('reserved_connections', true), '0')::int;

SELECT c.relname AS name, i.indisvalid AND i.indisready AND i.indislive AS valid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
  WHERE c.relnamespace = (SELECT t.relnamespace FROM pg_catalog.pg_class t WHERE t.oid = to_regclass('"app_consumer_messages"'));

SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead FROM pg_catalog.pg_stat_all_tables
  WHERE relid IN (to_regclass('"app_consumer_messages"'), to_regclass('"app_message_claims"'), to_regclass('"app_poisoned_messages"'), to_regclass('"app_message_slots"'), to_regclass('"app_message_rates"'), to_regclass('"app_recent_insert_ids"'), to_regclass('"app_inbox_messages"'))
  ORDER BY n_dead_tup DESC, relname;

SELECT * FROM (
SELECT 'transaction' AS kind, a.pid::bigint AS pid, COALESCE(a.application_name, '') AS name, GREATEST(age(a.backend_xmin), age(a.backend_xid))::bigint AS behind,
  COALESCE((EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::bigint - (EXTRACT(EPOCH FROM a.xact_start) * 1000000)::bigint, 0) AS micros
FROM pg_catalog.pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
  AND (a.datid IS NULL OR a.datid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()))
UNION ALL
SELECT 'prepared transaction', 0, p.gid, age(p.transaction)::bigint, (EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::bigint - (EXTRACT(EPOCH FROM p.prepared) * 1000000)::bigint
FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database()
UNION ALL
SELECT 'replication slot', COALESCE(s.active_pid, 0)::bigint, s.slot_name, age(s.xmin)::bigint, 0 FROM pg_catalog.pg_replication_slots s WHERE s.xmin IS NOT NULL
) x ORDER BY micros DESC, behind DESC LIMIT 20;
