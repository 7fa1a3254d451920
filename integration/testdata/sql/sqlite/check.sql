PRAGMA journal_mode;

PRAGMA busy_timeout;

SELECT file FROM pragma_database_list WHERE name = 'main';
