SELECT version();

SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = 'sys' AND c.relname = 'iam_pg_role_mappings' OR n.nspname = 'spanner_sys' OR n.nspname = 'pg_catalog' AND c.relname = 'pg_dist_partition';
