-- Instants are microseconds since 1970-01-01 UTC.

-- Which migrations have been applied.
CREATE TABLE IF NOT EXISTS {migrations} (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL);

-- What waits to be consumed: one row per message and consumer. AUTOINCREMENT
-- keeps an id from ever being used again.
CREATE TABLE {messages} (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  message_id      TEXT NOT NULL,
  consumer_type   TEXT NOT NULL,
  payload_type    TEXT NOT NULL,
  payload         TEXT NOT NULL,
  headers         TEXT,
  insert_id       TEXT,
  created_at      INTEGER NOT NULL,
  available_after INTEGER NOT NULL,
  attempts        INTEGER NOT NULL DEFAULT 0,
  crashes         INTEGER NOT NULL DEFAULT 0,
  errors          TEXT
);

CREATE INDEX "{prefix}consumer_messages_due" ON {messages} (consumer_type, available_after, id) WHERE crashes = 0;
CREATE INDEX "{prefix}consumer_messages_crashed" ON {messages} (consumer_type, available_after, id) WHERE crashes > 0;
CREATE UNIQUE INDEX "{prefix}consumer_messages_insert_id" ON {messages} (insert_id, consumer_type) WHERE insert_id IS NOT NULL;

-- Who holds what: one row per leased batch. The ids are a JSON list.
CREATE TABLE {claims} (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  owner        TEXT NOT NULL,
  solo         INTEGER NOT NULL,
  claimed_at   INTEGER NOT NULL,
  leased_until INTEGER NOT NULL,
  message_ids  TEXT NOT NULL CHECK (json_array_length(message_ids) > 0 AND instr(message_ids, 'null') = 0)
);

-- What has used up its attempts, or its owners' lives.
CREATE TABLE {poisoned} (
  id              INTEGER PRIMARY KEY,
  message_id      TEXT NOT NULL,
  consumer_type   TEXT NOT NULL,
  payload_type    TEXT NOT NULL,
  payload         TEXT NOT NULL,
  headers         TEXT,
  insert_id       TEXT,
  created_at      INTEGER NOT NULL,
  available_after INTEGER NOT NULL,
  attempts        INTEGER NOT NULL,
  crashes         INTEGER NOT NULL,
  errors          TEXT,
  poisoned_at     INTEGER NOT NULL,
  reason          TEXT NOT NULL
);

CREATE INDEX "{prefix}poisoned_messages_consumer" ON {poisoned} (consumer_type, poisoned_at);
CREATE INDEX "{prefix}poisoned_messages_newest" ON {poisoned} (poisoned_at, id);

-- Cron rows that turn into messages when due, or once at run_at when somebody
-- asks for that.
CREATE TABLE {schedules} (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  name            TEXT UNIQUE,
  tag             TEXT,
  payload_type    TEXT NOT NULL,
  payload         TEXT NOT NULL,
  headers         TEXT,
  cron_expression TEXT NOT NULL,
  cron_timezone   TEXT NOT NULL,
  available_after INTEGER NOT NULL,
  run_at          INTEGER,
  paused          INTEGER NOT NULL DEFAULT 0,
  last_fired_at   INTEGER,
  last_error      TEXT,
  created_at      INTEGER NOT NULL
);

CREATE INDEX "{prefix}scheduled_messages_due" ON {schedules} (available_after) WHERE NOT paused;
CREATE INDEX "{prefix}scheduled_messages_asked" ON {schedules} (run_at) WHERE run_at IS NOT NULL;
CREATE INDEX "{prefix}scheduled_messages_tag" ON {schedules} (tag);

INSERT INTO {migrations} (version, applied_at) VALUES (1, CURRENT_TIMESTAMP);
