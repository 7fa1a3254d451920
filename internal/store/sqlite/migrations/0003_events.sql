-- The event log: one row per stream.
CREATE TABLE {streams} (
  stream     TEXT PRIMARY KEY,
  category   TEXT NOT NULL,
  version    INTEGER NOT NULL,
  closed     INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Events are only ever added. There is one writer at a time, and AUTOINCREMENT is
-- rolled back with it, so the sequence number is the place in the order of the
-- whole log, without gaps.
CREATE TABLE {events} (
  sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id    TEXT NOT NULL,
  stream      TEXT NOT NULL,
  version     INTEGER NOT NULL,
  category    TEXT NOT NULL,
  slot        INTEGER NOT NULL,
  event_type  TEXT NOT NULL,
  schema      INTEGER NOT NULL,
  data        TEXT,
  headers     TEXT,
  recorded_at INTEGER NOT NULL,
  UNIQUE (stream, version)
);

-- How far each shard of each version of a projection has come.
CREATE TABLE {subscriptions} (
  name         TEXT NOT NULL,
  version      INTEGER NOT NULL,
  shard        INTEGER NOT NULL,
  shards       INTEGER NOT NULL,
  filter       TEXT NOT NULL,
  position     INTEGER NOT NULL,
  replay_until INTEGER NOT NULL DEFAULT 0,
  status       TEXT NOT NULL,
  attempts     INTEGER NOT NULL DEFAULT 0,
  next_at      INTEGER NOT NULL,
  last_error   TEXT,
  moved_at     INTEGER NOT NULL,
  PRIMARY KEY (name, version, shard)
);

-- Which version of a projection is the one to read.
CREATE TABLE {projections} (
  name           TEXT PRIMARY KEY,
  active_version INTEGER NOT NULL
);

-- Events that a projection has put aside.
CREATE TABLE {parked} (
  name      TEXT NOT NULL,
  version   INTEGER NOT NULL,
  position  INTEGER NOT NULL,
  stream    TEXT NOT NULL,
  reason    TEXT NOT NULL,
  parked_at INTEGER NOT NULL,
  PRIMARY KEY (name, version, position)
);

CREATE INDEX "{prefix}event_parked_stream" ON {parked} (name, version, stream);

-- States of streams, kept to save reading them from the start.
CREATE TABLE {snapshots} (
  stream     TEXT NOT NULL,
  kind       TEXT NOT NULL,
  version    INTEGER NOT NULL,
  state      TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (stream, kind)
);

INSERT INTO {migrations} (version, applied_at) VALUES (3, CURRENT_TIMESTAMP);
