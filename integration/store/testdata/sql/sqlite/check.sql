PRAGMA journal_mode;

PRAGMA busy_timeout;
