-- Consumers, by their stored names, of which no message may be claimed.
CREATE TABLE {paused} (
  consumer_type text PRIMARY KEY,
  paused_at     timestamptz NOT NULL
);

INSERT INTO {migrations} (version, applied_at) VALUES (2, CURRENT_TIMESTAMP);
