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

INSERT INTO {migrations} (version, applied_at) VALUES (5, CURRENT_TIMESTAMP);
