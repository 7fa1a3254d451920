PRAGMA synchronous;

SELECT name, TRUE AS valid FROM sqlite_master WHERE type = 'index';
