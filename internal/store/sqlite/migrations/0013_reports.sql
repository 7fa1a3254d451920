-- What operators look at: which processes there are, what has become of messages in each of the last
-- minutes, which failures belong together and since when, and who vanished with which message.
CREATE TABLE {processes} (
  id          TEXT PRIMARY KEY NOT NULL,
  kind        TEXT NOT NULL,
  host        TEXT NOT NULL,
  pid         INTEGER NOT NULL,
  program     TEXT NOT NULL,
  version     TEXT NOT NULL,
  started_at  INTEGER NOT NULL,
  seen_at     INTEGER NOT NULL,
  stopped_at  INTEGER,
  manifest    TEXT NOT NULL,
  state       TEXT NOT NULL
);
CREATE INDEX "{prefix}message_processes_seen" ON {processes} (seen_at);

CREATE TABLE {minutes} (
  consumer_type TEXT NOT NULL,
  minute        INTEGER NOT NULL,
  done INTEGER NOT NULL DEFAULT 0, retried INTEGER NOT NULL DEFAULT 0, poisoned INTEGER NOT NULL DEFAULT 0,
  snoozed INTEGER NOT NULL DEFAULT 0, discarded INTEGER NOT NULL DEFAULT 0,
  run_0 INTEGER NOT NULL DEFAULT 0, run_1 INTEGER NOT NULL DEFAULT 0, run_2 INTEGER NOT NULL DEFAULT 0,
  run_3 INTEGER NOT NULL DEFAULT 0, run_4 INTEGER NOT NULL DEFAULT 0, run_5 INTEGER NOT NULL DEFAULT 0,
  run_6 INTEGER NOT NULL DEFAULT 0, run_7 INTEGER NOT NULL DEFAULT 0, run_8 INTEGER NOT NULL DEFAULT 0,
  run_9 INTEGER NOT NULL DEFAULT 0, run_10 INTEGER NOT NULL DEFAULT 0, run_11 INTEGER NOT NULL DEFAULT 0,
  lag_0 INTEGER NOT NULL DEFAULT 0, lag_1 INTEGER NOT NULL DEFAULT 0, lag_2 INTEGER NOT NULL DEFAULT 0,
  lag_3 INTEGER NOT NULL DEFAULT 0, lag_4 INTEGER NOT NULL DEFAULT 0, lag_5 INTEGER NOT NULL DEFAULT 0,
  lag_6 INTEGER NOT NULL DEFAULT 0, lag_7 INTEGER NOT NULL DEFAULT 0, lag_8 INTEGER NOT NULL DEFAULT 0,
  lag_9 INTEGER NOT NULL DEFAULT 0, lag_10 INTEGER NOT NULL DEFAULT 0, lag_11 INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (consumer_type, minute)
);
CREATE INDEX "{prefix}message_minutes_minute" ON {minutes} (minute);

CREATE TABLE {failures} (
  consumer_type TEXT NOT NULL,
  fingerprint   TEXT NOT NULL,
  error_type    TEXT NOT NULL,
  sample        TEXT NOT NULL,
  runs          INTEGER NOT NULL,
  first_at      INTEGER NOT NULL,
  last_at       INTEGER NOT NULL,
  first_version TEXT NOT NULL,
  row_id        INTEGER NOT NULL,
  PRIMARY KEY (consumer_type, fingerprint)
);
CREATE INDEX "{prefix}message_failures_last" ON {failures} (last_at);

CREATE TABLE {crashes} (
  id            INTEGER PRIMARY KEY,
  row_id        INTEGER NOT NULL,
  consumer_type TEXT NOT NULL,
  owner         TEXT NOT NULL,
  solo          INTEGER NOT NULL,
  crashed_at    INTEGER NOT NULL
);
CREATE INDEX "{prefix}message_crashes_row" ON {crashes} (row_id);
CREATE INDEX "{prefix}message_crashes_at" ON {crashes} (crashed_at);

ALTER TABLE {poisoned} ADD COLUMN fingerprint TEXT;
CREATE INDEX "{prefix}poisoned_messages_group" ON {poisoned} (consumer_type, fingerprint, id);
CREATE INDEX "{prefix}poisoned_messages_message" ON {poisoned} (message_id);
ALTER TABLE {paused} ADD COLUMN paused_by TEXT NOT NULL DEFAULT '';
ALTER TABLE {paused} ADD COLUMN note TEXT NOT NULL DEFAULT '';

INSERT INTO {migrations} (version, applied_at) VALUES (13, CURRENT_TIMESTAMP);
