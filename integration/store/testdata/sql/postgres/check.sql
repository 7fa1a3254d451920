SELECT 'standby' AS name, pg_is_in_recovery()::text AS setting UNION ALL SELECT name, setting FROM pg_catalog.pg_settings
  WHERE name IN ('standard_conforming_strings', 'DateStyle', 'jit', 'enable_seqscan', 'enable_indexscan', 'enable_nestloop', 'enable_sort', 'jit_above_cost');
