-- What people have changed and are changing: who, why, what, and how far it is.
CREATE TABLE {operations} (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  kind         TEXT NOT NULL,
  actor        TEXT NOT NULL,
  reason       TEXT NOT NULL,
  target       TEXT NOT NULL,
  preview      TEXT NOT NULL,
  state        TEXT NOT NULL,
  rate         INTEGER NOT NULL,
  canary       INTEGER NOT NULL,
  canaries     TEXT NOT NULL,
  after_id     INTEGER NOT NULL,
  up_to_id     INTEGER NOT NULL,
  changed      INTEGER NOT NULL,
  left_alone   INTEGER NOT NULL,
  note         TEXT NOT NULL,
  leased_by    TEXT,
  leased_until INTEGER,
  created_at   INTEGER NOT NULL,
  starts_at    INTEGER,
  finished_at  INTEGER
);
CREATE INDEX "{prefix}message_operations_state" ON {operations} (state, id);
CREATE INDEX "{prefix}message_operations_created" ON {operations} (created_at);

INSERT INTO {migrations} (version, applied_at) VALUES (15, CURRENT_TIMESTAMP);
