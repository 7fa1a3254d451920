-- The event log: one row per stream, whose lock is what two appends meet at.
-- The version is in no index, so that an append is a HOT update.
CREATE TABLE {streams} (
  stream     text PRIMARY KEY,
  category   text NOT NULL,
  version    bigint NOT NULL,
  closed     boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL
) WITH (fillfactor = 80);

-- Events are only ever added. Their position, the place in the order of the whole
-- log, is given after the commit and without gaps; until then it is NULL. The
-- sequence number has gaps and is no order to read by.
CREATE TABLE {events} (
  sequence    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  position    bigint,
  event_id    uuid NOT NULL,
  stream      text NOT NULL,
  version     bigint NOT NULL,
  category    text NOT NULL,
  slot        smallint NOT NULL,
  event_type  text NOT NULL,
  schema      smallint NOT NULL,
  data        text,
  headers     text,
  recorded_at timestamptz NOT NULL,
  UNIQUE (stream, version)
) WITH (
  -- Numbering writes each row once more, and what reads the log wants a fresh visibility map.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02,
  autovacuum_analyze_scale_factor = 0.02
);

CREATE UNIQUE INDEX "{prefix}events_position" ON {events} (position) WHERE position IS NOT NULL;
CREATE INDEX "{prefix}events_unnumbered" ON {events} (sequence) WHERE position IS NULL;

-- How far the numbering has come. Whoever numbers holds the row.
CREATE TABLE {head} (
  id       smallint PRIMARY KEY CHECK (id = 1),
  position bigint NOT NULL
) WITH (fillfactor = 10);

INSERT INTO {head} (id, position) VALUES (1, 0);

-- How far each shard of each version of a projection has come.
CREATE TABLE {subscriptions} (
  name         text NOT NULL,
  version      int NOT NULL,
  shard        smallint NOT NULL,
  shards       smallint NOT NULL,
  filter       text NOT NULL,
  position     bigint NOT NULL,
  replay_until bigint NOT NULL DEFAULT 0,
  status       text NOT NULL,
  attempts     int NOT NULL DEFAULT 0,
  next_at      timestamptz NOT NULL,
  last_error   text,
  moved_at     timestamptz NOT NULL,
  PRIMARY KEY (name, version, shard)
) WITH (fillfactor = 50);

-- Which version of a projection is the one to read.
CREATE TABLE {projections} (
  name           text PRIMARY KEY,
  active_version int NOT NULL
);

-- Events that a projection has put aside.
CREATE TABLE {parked} (
  name      text NOT NULL,
  version   int NOT NULL,
  position  bigint NOT NULL,
  stream    text NOT NULL,
  reason    text NOT NULL,
  parked_at timestamptz NOT NULL,
  PRIMARY KEY (name, version, position)
);

CREATE INDEX "{prefix}event_parked_stream" ON {parked} (name, version, stream);

-- States of streams, kept to save reading them from the start.
CREATE TABLE {snapshots} (
  stream     text NOT NULL,
  kind       text NOT NULL,
  version    bigint NOT NULL,
  state      text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (stream, kind)
);

INSERT INTO {migrations} (version, applied_at) VALUES (3, CURRENT_TIMESTAMP);
