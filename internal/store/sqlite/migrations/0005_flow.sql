-- Insert ids that stay taken for a while after their message was consumed.
CREATE TABLE {recent} (
  insert_id     TEXT NOT NULL,
  consumer_type TEXT NOT NULL,
  until         INTEGER NOT NULL,
  PRIMARY KEY (insert_id, consumer_type)
);

CREATE INDEX "{prefix}recent_insert_ids_until" ON {recent} (until);

-- Who may run consumers with a limit over all processes: each row is one that runs, for whoever
-- has leased it.
CREATE TABLE {slots} (
  name         TEXT NOT NULL,
  n            INTEGER NOT NULL,
  owner        TEXT NOT NULL,
  leased_until INTEGER NOT NULL,
  PRIMARY KEY (name, n)
);

-- How far the rates of consumers are spent: the instant up to which what was claimed has used them.
CREATE TABLE {rates} (
  name    TEXT PRIMARY KEY NOT NULL,
  used_to INTEGER NOT NULL
);

-- Claimed messages whose runs people ask to end, and what came of that.
CREATE TABLE {stops} (
  message_id INTEGER PRIMARY KEY NOT NULL,
  owner      TEXT NOT NULL,
  asked_at   INTEGER NOT NULL,
  outcome    TEXT
);

INSERT INTO {migrations} (version, applied_at) VALUES (5, CURRENT_TIMESTAMP);
