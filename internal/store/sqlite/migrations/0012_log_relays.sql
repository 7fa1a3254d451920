-- Who reads a shard of the log without an open transaction, until when, and by which mark the broker
-- knows the last record that left; -1 says that the position counts, whatever the broker has.
ALTER TABLE {subscriptions} ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE {subscriptions} ADD COLUMN leased_until INTEGER;
ALTER TABLE {subscriptions} ADD COLUMN mark INTEGER NOT NULL DEFAULT 0;

INSERT INTO {migrations} (version, applied_at) VALUES (12, CURRENT_TIMESTAMP);
