SHOW VARIABLES WHERE Variable_name IN ('version', 'sql_mode', 'read_only', 'log_bin', 'binlog_format', 'wsrep_on',
		'character_set_client', 'max_allowed_packet', 'autocommit');
