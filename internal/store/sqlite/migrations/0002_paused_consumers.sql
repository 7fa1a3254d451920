-- Consumers, by their stored names, of which no message may be claimed.
CREATE TABLE {paused} (
  consumer_type TEXT PRIMARY KEY NOT NULL,
  paused_at     INTEGER NOT NULL
);

INSERT INTO {migrations} (version, applied_at) VALUES (2, CURRENT_TIMESTAMP);
