SELECT CAST(@@sql_select_limit AS CHAR);

SHOW VARIABLES WHERE Variable_name IN ('version', 'sql_mode', 'read_only', 'log_bin', 'binlog_format', 'wsrep_on',
		'character_set_client', 'character_set_connection', 'character_set_results', 'max_allowed_packet', 'autocommit', 'completion_type', 'sql_safe_updates', 'foreign_key_checks');
