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
  created_at      timestamptz NOT NULL,
  available_after timestamptz NOT NULL,
  attempts        int NOT NULL DEFAULT 0,
  crashes         smallint NOT NULL DEFAULT 0,
  errors          text
) WITH (
  -- Rows live for moments, so vacuum by count and do not wait for a share of the table.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX "{prefix}consumer_messages_due" ON {messages} (consumer_type, available_after, id) WHERE crashes = 0;
CREATE INDEX "{prefix}consumer_messages_crashed" ON {messages} (consumer_type, available_after, id) WHERE crashes > 0;
CREATE UNIQUE INDEX "{prefix}consumer_messages_insert_id" ON {messages} (insert_id, consumer_type) WHERE insert_id IS NOT NULL;

-- Who holds what: one row per leased batch. A NULL among the ids would hide
-- every message from every consumer, hence the check.
CREATE TABLE {claims} (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  owner        text NOT NULL,
  solo         boolean NOT NULL,
  claimed_at   timestamptz NOT NULL,
  leased_until timestamptz NOT NULL,
  message_ids  bigint[] NOT NULL CHECK (cardinality(message_ids) > 0 AND array_position(message_ids, NULL) IS NULL)
) WITH (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

-- What has used up its attempts, or its owners' lives.
CREATE TABLE {poisoned} (
  id              bigint PRIMARY KEY,
  message_id      uuid NOT NULL,
  consumer_type   text NOT NULL,
  payload_type    text NOT NULL,
  payload         text NOT NULL,
  headers         text,
  insert_id       text,
  created_at      timestamptz NOT NULL,
  available_after timestamptz NOT NULL,
  attempts        int NOT NULL,
  crashes         smallint NOT NULL,
  errors          text,
  poisoned_at     timestamptz NOT NULL,
  reason          text NOT NULL
);

CREATE INDEX "{prefix}poisoned_messages_consumer" ON {poisoned} (consumer_type, poisoned_at);
CREATE INDEX "{prefix}poisoned_messages_newest" ON {poisoned} (poisoned_at, id);

-- Cron rows that turn into messages when due, or once at run_at when somebody
-- asks for that.
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
  paused          boolean NOT NULL DEFAULT false,
  last_fired_at   timestamptz,
  last_error      text,
  created_at      timestamptz NOT NULL
);

CREATE INDEX "{prefix}scheduled_messages_due" ON {schedules} (available_after) WHERE NOT paused;
CREATE INDEX "{prefix}scheduled_messages_asked" ON {schedules} (run_at) WHERE run_at IS NOT NULL;
CREATE INDEX "{prefix}scheduled_messages_tag" ON {schedules} (tag);

INSERT INTO {migrations} (version, applied_at) VALUES (1, CURRENT_TIMESTAMP);
