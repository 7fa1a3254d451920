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
  group_key       TEXT,
  created_at      INTEGER NOT NULL,
  available_after INTEGER NOT NULL,
  attempts        INTEGER NOT NULL DEFAULT 0,
  crashes         INTEGER NOT NULL DEFAULT 0,
  errors          TEXT,
  steps           TEXT,
  order_key       TEXT,
  lane            INTEGER,
  rank            INTEGER,
  priority        INTEGER,
  keyed           INTEGER GENERATED ALWAYS AS (lane IS NOT NULL) VIRTUAL
);

CREATE UNIQUE INDEX "{prefix}consumer_messages_insert_id" ON {messages} (insert_id, consumer_type) WHERE insert_id IS NOT NULL;
-- A claim looks for one payload type at a time, so that messages of a type without a consumer are not read each
-- time. The list of pending messages goes by both indexes.
CREATE INDEX "{prefix}consumer_messages_due" ON {messages} (consumer_type, payload_type, available_after, id) WHERE keyed = FALSE AND crashes = 0;
CREATE INDEX "{prefix}consumer_messages_crashed" ON {messages} (consumer_type, payload_type, available_after, id) WHERE keyed = FALSE AND crashes > 0;
-- Messages with a priority above the normal one, which is NULL. They are in the index above as well.
CREATE INDEX "{prefix}consumer_messages_prior" ON {messages} (consumer_type, payload_type, priority, available_after, id) WHERE keyed = FALSE AND crashes = 0 AND priority > 0;
-- Messages with a key run in its order. A lane stands for a key, and a rank for a place in it; both are NULL in
-- messages without a key.
CREATE INDEX "{prefix}consumer_messages_lane" ON {messages} (consumer_type, lane, rank) WHERE lane IS NOT NULL;
CREATE INDEX "{prefix}consumer_messages_ranked" ON {messages} (consumer_type, rank) WHERE keyed = TRUE;
CREATE INDEX "{prefix}consumer_messages_stuck" ON {messages} (consumer_type, rank) WHERE keyed = TRUE AND crashes > 0;

-- Few messages are in a group.
CREATE INDEX "{prefix}consumer_messages_group" ON {messages} (group_key) WHERE group_key IS NOT NULL;

-- Ids grow in the order of commits, since there is one writer at a time.
CREATE TRIGGER "{prefix}consumer_messages_rank" AFTER INSERT ON {messages} WHEN NEW.lane IS NOT NULL AND NEW.rank IS NULL
BEGIN UPDATE {messages} SET rank = NEW.id WHERE id = NEW.id; END;

-- Who holds what: one row per leased batch. The ids are a JSON list, and so are their lanes, in the same order.
CREATE TABLE {claims} (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  owner        TEXT NOT NULL,
  solo         INTEGER NOT NULL,
  claimed_at   INTEGER NOT NULL,
  leased_until INTEGER NOT NULL,
  leased_for   INTEGER,
  message_ids  TEXT NOT NULL CHECK (json_array_length(message_ids) > 0 AND instr(message_ids, 'null') = 0),
  consumer_type TEXT,
  lanes         TEXT CHECK (json_array_length(lanes) = json_array_length(message_ids))
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
  group_key       TEXT,
  created_at      INTEGER NOT NULL,
  available_after INTEGER NOT NULL,
  attempts        INTEGER NOT NULL,
  crashes         INTEGER NOT NULL,
  errors          TEXT,
  steps           TEXT,
  poisoned_at     INTEGER NOT NULL,
  reason          TEXT NOT NULL,
  order_key       TEXT,
  lane            INTEGER,
  rank            INTEGER,
  parks           BOOLEAN,
  fingerprint     TEXT
);

CREATE INDEX "{prefix}poisoned_messages_consumer" ON {poisoned} (consumer_type, poisoned_at);
CREATE INDEX "{prefix}poisoned_messages_newest" ON {poisoned} (poisoned_at, id);
CREATE INDEX "{prefix}poisoned_messages_group" ON {poisoned} (consumer_type, fingerprint, id);
CREATE INDEX "{prefix}poisoned_messages_message" ON {poisoned} (message_id);
CREATE INDEX "{prefix}poisoned_messages_kind" ON {poisoned} (consumer_type, payload_type);
-- A poisoned message that parks keeps those of its lane from running.
CREATE INDEX "{prefix}poisoned_messages_parks" ON {poisoned} (consumer_type, lane) WHERE parks;
CREATE INDEX "{prefix}poisoned_messages_waited" ON {poisoned} (group_key) WHERE group_key IS NOT NULL;

-- Groups of messages that have a payload to produce once no message of consumer_messages has their key. The messages
-- to insert then are a JSON list; in place of them, if there are any, those of poisoned if a member is poisoned.
CREATE TABLE {groups} (
  name       TEXT PRIMARY KEY NOT NULL,
  id         TEXT NOT NULL,
  messages   TEXT NOT NULL,
  poisoned   TEXT,
  created_at INTEGER NOT NULL
);

-- What was consumed, of consumers that keep it: until expires_at. A row has the id of its message. Started_at is
-- when the last run began, if it did.
CREATE TABLE {consumed} (
  id            INTEGER NOT NULL,
  message_id    TEXT NOT NULL,
  consumer_type TEXT NOT NULL,
  payload_type  TEXT NOT NULL,
  payload       TEXT,
  headers       TEXT,
  order_key     TEXT,
  any_order     BOOLEAN NOT NULL,
  created_at    INTEGER NOT NULL,
  attempts      INTEGER NOT NULL,
  outcome       TEXT NOT NULL,
  reason        TEXT,
  version       TEXT NOT NULL,
  started_at    INTEGER,
  run_micros    INTEGER NOT NULL,
  finished_at   INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  PRIMARY KEY (id, message_id)
);

CREATE INDEX "{prefix}consumed_messages_consumer" ON {consumed} (consumer_type, finished_at, id);
CREATE INDEX "{prefix}consumed_messages_newest" ON {consumed} (finished_at, id);
CREATE INDEX "{prefix}consumed_messages_message" ON {consumed} (message_id);
CREATE INDEX "{prefix}consumed_messages_keyed" ON {consumed} (order_key, finished_at, id) WHERE order_key IS NOT NULL;
CREATE INDEX "{prefix}consumed_messages_expires" ON {consumed} (expires_at);

-- Schedules, which make messages at available_after, or once for run_at, when a run was
-- requested. One that could not fire does not before retry_at; both times stay as they are.
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
  retry_at        INTEGER,
  paused          INTEGER NOT NULL DEFAULT 0,
  last_fired_at   INTEGER,
  last_error      TEXT,
  created_at      INTEGER NOT NULL
);

CREATE INDEX "{prefix}scheduled_messages_due" ON {schedules} (available_after) WHERE NOT paused;
CREATE INDEX "{prefix}scheduled_messages_asked" ON {schedules} (run_at) WHERE run_at IS NOT NULL;
CREATE INDEX "{prefix}scheduled_messages_retried" ON {schedules} (retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX "{prefix}scheduled_messages_tag" ON {schedules} (tag);

-- Consumers, by their stored names, of which no message may be claimed.
CREATE TABLE {paused} (
  consumer_type TEXT PRIMARY KEY NOT NULL,
  paused_at     INTEGER NOT NULL,
  paused_by     TEXT NOT NULL DEFAULT '',
  note          TEXT NOT NULL DEFAULT ''
);

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

-- How far each shard of each version of a projection has come. One that reads without an open transaction has an
-- owner until its lease ends, and a mark by which the broker knows the last record that left; -1 says that the
-- position counts, whatever the broker has.
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
  owner        TEXT NOT NULL DEFAULT '',
  leased_until INTEGER,
  leased_for   INTEGER,
  mark         INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (name, version, shard)
);

-- Which version of a projection is the one to read.
CREATE TABLE {projections} (
  name           TEXT PRIMARY KEY,
  active_version INTEGER NOT NULL
);

-- Events that a projection has put aside. parked_at is NULL for an event that an earlier run or version has put
-- aside and this one has not reached. replay: an earlier run or version has passed the event and not parked it.
CREATE TABLE {parked} (
  name      TEXT NOT NULL,
  version   INTEGER NOT NULL,
  position  INTEGER NOT NULL,
  stream    TEXT NOT NULL,
  reason    TEXT NOT NULL,
  replay    INTEGER NOT NULL DEFAULT 0,
  parked_at INTEGER,
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
  leased_for   INTEGER,
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

-- What becomes of a lane when one of its messages is poisoned.
CREATE TABLE {gates} (
  consumer_type TEXT PRIMARY KEY NOT NULL,
  parks         BOOLEAN NOT NULL
);

-- What runs of consumers with a breaker have come to, in two halves of its window, and until when
-- it is open.
CREATE TABLE {breakers} (
  name        TEXT PRIMARY KEY NOT NULL,
  half_since  INTEGER NOT NULL,
  done        INTEGER NOT NULL DEFAULT 0,
  failed      INTEGER NOT NULL DEFAULT 0,
  was_done    INTEGER NOT NULL DEFAULT 0,
  was_failed  INTEGER NOT NULL DEFAULT 0,
  opened      INTEGER NOT NULL DEFAULT 0,
  opened_at   INTEGER,
  open_until  INTEGER
);

-- Up to which instant the rates of single keys are used. One that is in the past counts for nothing.
CREATE TABLE {key rates} (
  name    TEXT NOT NULL,
  lane    INTEGER NOT NULL,
  used_to INTEGER NOT NULL,
  PRIMARY KEY (name, lane)
);
CREATE INDEX "{prefix}message_key_rates_used" ON {key rates} (name, used_to);

-- Which records of a broker each receiver has taken over, for as long as they might be delivered
-- again. A hash stands for the record's source and id.
CREATE TABLE {inbox} (
  receiver    TEXT NOT NULL,
  hash        BLOB NOT NULL,
  received_at INTEGER NOT NULL,
  PRIMARY KEY (receiver, hash)
) WITHOUT ROWID;

CREATE INDEX "{prefix}inbox_messages_received" ON {inbox} (receiver, received_at);

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
  state       TEXT NOT NULL,
  contract    TEXT
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

-- What has become of each schedule's last fires, a JSON list. What becomes of the schedule
-- becomes of its row here.
CREATE TABLE {fires} (
  schedule_id INTEGER PRIMARY KEY NOT NULL,
  recent      TEXT NOT NULL
);
CREATE TRIGGER "{prefix}scheduled_messages_gone" AFTER DELETE ON {schedules}
BEGIN DELETE FROM {fires} WHERE schedule_id = OLD.id; END;

-- What people have changed and are changing: who, why, what, how far it is, and how many processes in a row have
-- died while they ran it.
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
  finished_at  INTEGER,
  deaths       INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX "{prefix}message_operations_state" ON {operations} (state, id);
CREATE INDEX "{prefix}message_operations_created" ON {operations} (created_at);

-- Which types of events the instances of each receiver accept, and their consumers, after a tab: one that lacks a
-- type or a consumer leaves its records to others.
CREATE TABLE {inbox types} (
  receiver   TEXT NOT NULL,
  event_type TEXT NOT NULL,
  until      INTEGER NOT NULL,
  PRIMARY KEY (receiver, event_type)
) WITHOUT ROWID;

INSERT INTO {migrations} (version, applied_at) VALUES (1, CURRENT_TIMESTAMP);
