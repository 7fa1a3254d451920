-- Which migrations have been applied.
CREATE TABLE IF NOT EXISTS {migrations} (version int PRIMARY KEY, applied_at timestamptz NOT NULL);

-- What waits to be consumed: one row per message and consumer.
CREATE TABLE {messages} (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  message_id      uuid NOT NULL,
  consumer_type   text NOT NULL,
  payload_type    text NOT NULL,
  payload         text NOT NULL,
  headers         text,
  insert_id       text,
  group_key       text,
  created_at      timestamptz NOT NULL,
  available_after timestamptz NOT NULL,
  attempts        int NOT NULL DEFAULT 0,
  crashes         smallint NOT NULL DEFAULT 0,
  errors          text,
  steps           text,
  order_key       text,
  lane            bigint,
  rank            bigint,
  priority        smallint,
  keyed           boolean GENERATED ALWAYS AS (lane IS NOT NULL) STORED
) WITH (
  -- Rows live for moments, so vacuum by count and do not wait for a share of the table.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0
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

-- One number at a time: a session that had a block of them would break the order.
CREATE SEQUENCE {ranks} CACHE 1 OWNED BY {messages}.rank;

-- Who holds what: one row per leased batch. A NULL among the ids would hide
-- every message from every consumer, hence the check.
CREATE TABLE {claims} (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  owner        text NOT NULL,
  solo         boolean NOT NULL,
  claimed_at   timestamptz NOT NULL,
  leased_until timestamptz NOT NULL,
  leased_for   bigint,
  message_ids  bigint[] NOT NULL CHECK (cardinality(message_ids) > 0 AND array_position(message_ids, NULL) IS NULL),
  consumer_type text,
  lanes         bigint[] CHECK (cardinality(lanes) = cardinality(message_ids))
) WITH (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

-- Of each message in the claim the lane, in the same order. They are hashes, which do not compress.
ALTER TABLE {claims} ALTER lanes SET STORAGE EXTERNAL;

-- What has used up its attempts, or its owners' lives.
CREATE TABLE {poisoned} (
  id              bigint PRIMARY KEY,
  message_id      uuid NOT NULL,
  consumer_type   text NOT NULL,
  payload_type    text NOT NULL,
  payload         text NOT NULL,
  headers         text,
  insert_id       text,
  group_key       text,
  created_at      timestamptz NOT NULL,
  available_after timestamptz NOT NULL,
  attempts        int NOT NULL,
  crashes         smallint NOT NULL,
  errors          text,
  steps           text,
  poisoned_at     timestamptz NOT NULL,
  reason          text NOT NULL,
  order_key       text,
  lane            bigint,
  rank            bigint,
  parks           boolean,
  fingerprint     text
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
  name       text COLLATE "C" PRIMARY KEY NOT NULL,
  id         text NOT NULL,
  messages   text NOT NULL,
  poisoned   text,
  created_at timestamptz NOT NULL
);

-- What was consumed, of consumers that keep it: until expires_at. A row has the id of its message. Started_at is
-- when the last run began, if it did.
CREATE TABLE {consumed} (
  id            bigint NOT NULL,
  message_id    uuid NOT NULL,
  consumer_type text NOT NULL,
  payload_type  text NOT NULL,
  payload       text,
  headers       text,
  order_key     text,
  any_order     boolean NOT NULL,
  created_at    timestamptz NOT NULL,
  attempts      int NOT NULL,
  outcome       text NOT NULL,
  reason        text,
  version       text NOT NULL,
  started_at    timestamptz,
  run_micros    bigint NOT NULL,
  finished_at   timestamptz NOT NULL,
  expires_at    timestamptz NOT NULL,
  PRIMARY KEY (id, message_id)
) WITH (
  -- Rows are added and, in their order, removed.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02,
  autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX "{prefix}consumed_messages_consumer" ON {consumed} (consumer_type, finished_at, id);
CREATE INDEX "{prefix}consumed_messages_newest" ON {consumed} (finished_at, id);
CREATE INDEX "{prefix}consumed_messages_message" ON {consumed} (message_id);
CREATE INDEX "{prefix}consumed_messages_keyed" ON {consumed} (order_key, finished_at, id) WHERE order_key IS NOT NULL;
CREATE INDEX "{prefix}consumed_messages_expires" ON {consumed} (expires_at);

-- Schedules, which make messages at available_after, or once for run_at, when a run was
-- requested. One that could not fire does not before retry_at; both times stay as they are.
CREATE TABLE {schedules} (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name            text UNIQUE,
  tag             text,
  payload_type    text NOT NULL,
  payload         text NOT NULL,
  headers         text,
  cron_expression text NOT NULL,
  cron_timezone   text NOT NULL,
  available_after timestamptz NOT NULL,
  run_at          timestamptz,
  retry_at        timestamptz,
  paused          boolean NOT NULL DEFAULT false,
  last_fired_at   timestamptz,
  last_error      text,
  created_at      timestamptz NOT NULL
);

CREATE INDEX "{prefix}scheduled_messages_due" ON {schedules} (available_after) WHERE NOT paused;
CREATE INDEX "{prefix}scheduled_messages_asked" ON {schedules} (run_at) WHERE run_at IS NOT NULL;
CREATE INDEX "{prefix}scheduled_messages_retried" ON {schedules} (retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX "{prefix}scheduled_messages_tag" ON {schedules} (tag);

-- Consumers, by their stored names, of which no message may be claimed.
CREATE TABLE {paused} (
  consumer_type text PRIMARY KEY,
  paused_at     timestamptz NOT NULL,
  paused_by     text NOT NULL DEFAULT '',
  note          text NOT NULL DEFAULT ''
);

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

-- How far each shard of each version of a projection has come. One that reads without an open transaction has an
-- owner until its lease ends, and a mark by which the broker knows the last record that left; -1 says that the
-- position counts, whatever the broker has.
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
  owner        text NOT NULL DEFAULT '',
  leased_until timestamptz,
  leased_for   bigint,
  mark         bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (name, version, shard)
) WITH (fillfactor = 50);

-- Which version of a projection is the one to read.
CREATE TABLE {projections} (
  name           text PRIMARY KEY,
  active_version int NOT NULL
);

-- Events that a projection has put aside. parked_at is NULL for an event that an earlier run or version has put
-- aside and this one has not reached. replay: an earlier run or version has passed the event and not parked it.
CREATE TABLE {parked} (
  name      text NOT NULL,
  version   int NOT NULL,
  position  bigint NOT NULL,
  stream    text NOT NULL,
  reason    text NOT NULL,
  replay    boolean NOT NULL DEFAULT false,
  parked_at timestamptz,
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

-- Insert ids that stay taken for a while after their message was consumed.
CREATE TABLE {recent} (
  insert_id     text NOT NULL,
  consumer_type text NOT NULL,
  until         timestamptz NOT NULL,
  PRIMARY KEY (insert_id, consumer_type)
);

CREATE INDEX "{prefix}recent_insert_ids_until" ON {recent} (until);

-- Who may run consumers with a limit over all processes: each row is one that runs, for whoever
-- has leased it.
CREATE TABLE {slots} (
  name         text NOT NULL,
  n            int NOT NULL,
  owner        text NOT NULL,
  leased_until timestamptz NOT NULL,
  leased_for   bigint,
  PRIMARY KEY (name, n)
) WITH (fillfactor = 50);

-- How far the rates of consumers are spent: the instant up to which what was claimed has used them.
CREATE TABLE {rates} (
  name    text PRIMARY KEY NOT NULL,
  used_to timestamptz NOT NULL
) WITH (fillfactor = 10);

-- Claimed messages whose runs people ask to end, and what came of that.
CREATE TABLE {stops} (
  message_id bigint PRIMARY KEY NOT NULL,
  owner      text NOT NULL,
  asked_at   timestamptz NOT NULL,
  outcome    text
);

-- Whoever claims messages with keys holds the row of their consumer meanwhile.
CREATE TABLE {gates} (
  consumer_type text PRIMARY KEY NOT NULL,
  parks         boolean NOT NULL
) WITH (fillfactor = 10);

-- What runs of consumers with a breaker have come to, in two halves of its window, and until when
-- it is open.
CREATE TABLE {breakers} (
  name        text PRIMARY KEY NOT NULL,
  half_since  timestamptz NOT NULL,
  done        bigint NOT NULL DEFAULT 0,
  failed      bigint NOT NULL DEFAULT 0,
  was_done    bigint NOT NULL DEFAULT 0,
  was_failed  bigint NOT NULL DEFAULT 0,
  opened      int NOT NULL DEFAULT 0,
  opened_at   timestamptz,
  open_until  timestamptz
) WITH (fillfactor = 10);

-- Up to which instant the rates of single keys are used. One that is in the past counts for nothing.
CREATE TABLE {key rates} (
  name    text NOT NULL,
  lane    bigint NOT NULL,
  used_to timestamptz NOT NULL,
  PRIMARY KEY (name, lane)
);
CREATE INDEX "{prefix}message_key_rates_used" ON {key rates} (name, used_to);

-- Which records of a broker each receiver has taken over, for as long as they might be delivered
-- again. A hash stands for the record's source and id.
CREATE TABLE {inbox} (
  receiver    text NOT NULL,
  hash        bytea NOT NULL,
  received_at timestamptz NOT NULL,
  PRIMARY KEY (receiver, hash)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX "{prefix}inbox_messages_received" ON {inbox} (receiver, received_at);

-- What operators look at: which processes there are, what has become of messages in each of the last
-- minutes, which failures belong together and since when, and who vanished with which message.
CREATE TABLE {processes} (
  id          text COLLATE "C" PRIMARY KEY NOT NULL,
  kind        text COLLATE "C" NOT NULL,
  host        text COLLATE "C" NOT NULL,
  pid         bigint NOT NULL,
  program     text COLLATE "C" NOT NULL,
  version     text COLLATE "C" NOT NULL,
  started_at  timestamptz NOT NULL,
  seen_at     timestamptz NOT NULL,
  stopped_at  timestamptz,
  manifest    text NOT NULL,
  state       text NOT NULL,
  contract    text
) WITH (fillfactor = 50);
CREATE INDEX "{prefix}message_processes_seen" ON {processes} (seen_at);

CREATE TABLE {minutes} (
  consumer_type text COLLATE "C" NOT NULL,
  minute        timestamptz NOT NULL,
  done bigint NOT NULL DEFAULT 0, retried bigint NOT NULL DEFAULT 0, poisoned bigint NOT NULL DEFAULT 0,
  snoozed bigint NOT NULL DEFAULT 0, discarded bigint NOT NULL DEFAULT 0,
  run_0 int NOT NULL DEFAULT 0, run_1 int NOT NULL DEFAULT 0, run_2 int NOT NULL DEFAULT 0,
  run_3 int NOT NULL DEFAULT 0, run_4 int NOT NULL DEFAULT 0, run_5 int NOT NULL DEFAULT 0,
  run_6 int NOT NULL DEFAULT 0, run_7 int NOT NULL DEFAULT 0, run_8 int NOT NULL DEFAULT 0,
  run_9 int NOT NULL DEFAULT 0, run_10 int NOT NULL DEFAULT 0, run_11 int NOT NULL DEFAULT 0,
  lag_0 int NOT NULL DEFAULT 0, lag_1 int NOT NULL DEFAULT 0, lag_2 int NOT NULL DEFAULT 0,
  lag_3 int NOT NULL DEFAULT 0, lag_4 int NOT NULL DEFAULT 0, lag_5 int NOT NULL DEFAULT 0,
  lag_6 int NOT NULL DEFAULT 0, lag_7 int NOT NULL DEFAULT 0, lag_8 int NOT NULL DEFAULT 0,
  lag_9 int NOT NULL DEFAULT 0, lag_10 int NOT NULL DEFAULT 0, lag_11 int NOT NULL DEFAULT 0,
  PRIMARY KEY (consumer_type, minute)
) WITH (fillfactor = 50);
CREATE INDEX "{prefix}message_minutes_minute" ON {minutes} (minute);

CREATE TABLE {failures} (
  consumer_type text COLLATE "C" NOT NULL,
  fingerprint   text COLLATE "C" NOT NULL,
  error_type    text COLLATE "C" NOT NULL,
  sample        text NOT NULL,
  runs          bigint NOT NULL,
  first_at      timestamptz NOT NULL,
  last_at       timestamptz NOT NULL,
  first_version text COLLATE "C" NOT NULL,
  row_id        bigint NOT NULL,
  PRIMARY KEY (consumer_type, fingerprint)
) WITH (fillfactor = 50);
CREATE INDEX "{prefix}message_failures_last" ON {failures} (last_at);

CREATE TABLE {crashes} (
  id            bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  row_id        bigint NOT NULL,
  consumer_type text COLLATE "C" NOT NULL,
  owner         text COLLATE "C" NOT NULL,
  solo          boolean NOT NULL,
  crashed_at    timestamptz NOT NULL
);
CREATE INDEX "{prefix}message_crashes_row" ON {crashes} (row_id);
CREATE INDEX "{prefix}message_crashes_at" ON {crashes} (crashed_at);

-- What has become of each schedule's last fires, a JSON list. What becomes of the schedule
-- becomes of its row here.
CREATE TABLE {fires} (
  schedule_id bigint PRIMARY KEY REFERENCES {schedules} (id) ON DELETE CASCADE,
  recent      text NOT NULL
) WITH (fillfactor = 50);

-- What people have changed and are changing: who, why, what, how far it is, and how many processes in a row have
-- died while they ran it.
CREATE TABLE {operations} (
  id           bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  kind         text COLLATE "C" NOT NULL,
  actor        text COLLATE "C" NOT NULL,
  reason       text NOT NULL,
  target       text NOT NULL,
  preview      text NOT NULL,
  state        text COLLATE "C" NOT NULL,
  rate         bigint NOT NULL,
  canary       bigint NOT NULL,
  canaries     text NOT NULL,
  after_id     bigint NOT NULL,
  up_to_id     bigint NOT NULL,
  changed      bigint NOT NULL,
  left_alone   bigint NOT NULL,
  note         text NOT NULL,
  leased_by    text COLLATE "C",
  leased_until timestamptz,
  created_at   timestamptz NOT NULL,
  starts_at    timestamptz,
  finished_at  timestamptz,
  deaths       bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX "{prefix}message_operations_state" ON {operations} (state, id);
CREATE INDEX "{prefix}message_operations_created" ON {operations} (created_at);

-- Which types of events the instances of each receiver accept, and their consumers, after a tab: one that lacks a
-- type or a consumer leaves its records to others.
CREATE TABLE {inbox types} (
  receiver   text NOT NULL,
  event_type text NOT NULL,
  until      timestamptz NOT NULL,
  PRIMARY KEY (receiver, event_type)
) WITH (fillfactor = 50);

-- What is larger than 2 KB is compressed, with lz4 in less than half of the time. Version 13 does not know it, and some
-- servers are built without it.
DO $lz4$ BEGIN EXECUTE 'ALTER TABLE {messages} ALTER COLUMN payload SET COMPRESSION lz4'; EXECUTE 'ALTER TABLE {poisoned} ALTER COLUMN payload SET COMPRESSION lz4'; EXECUTE 'ALTER TABLE {consumed} ALTER COLUMN payload SET COMPRESSION lz4'; EXECUTE 'ALTER TABLE {events} ALTER COLUMN data SET COMPRESSION lz4'; EXECUTE 'ALTER TABLE {snapshots} ALTER COLUMN state SET COMPRESSION lz4'; EXCEPTION WHEN OTHERS THEN NULL; END $lz4$;

INSERT INTO {migrations} (version, applied_at) VALUES (1, CURRENT_TIMESTAMP);
