-- How many processes in a row have died while they ran an operation.
ALTER TABLE {operations} ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;

INSERT INTO {migrations} (version, applied_at) VALUES (16, CURRENT_TIMESTAMP);
