-- How many processes in a row have died while they ran an operation. The statement can be run again.
ALTER TABLE {operations} ADD COLUMN /*M! IF NOT EXISTS */ deaths BIGINT NOT NULL DEFAULT 0;

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (16, CURRENT_TIMESTAMP);
