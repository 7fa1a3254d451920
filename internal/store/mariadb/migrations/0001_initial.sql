-- Instants are microseconds since 1970-01-01 UTC: FROM_UNIXTIME(available_after / 1e6) reads one.
-- Text is compared by its bytes, trailing spaces included. Every statement can be run again: here
-- each commits by itself, so a migration may have been interrupted.

-- Which migrations have been applied.
CREATE TABLE IF NOT EXISTS {migrations} (version INT PRIMARY KEY, applied_at TIMESTAMP NOT NULL) ENGINE = InnoDB;

-- What waits to be consumed: one row per message and consumer. Crashes come first in the index,
-- so that those that crashed stand apart from the others. A claim looks for one payload type at a time.
CREATE TABLE IF NOT EXISTS {messages} (
  id              BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  message_id      CHAR(36) NOT NULL,
  consumer_type   VARCHAR(255) NOT NULL,
  payload_type    VARCHAR(255) NOT NULL,
  payload         LONGTEXT NOT NULL,
  headers         MEDIUMTEXT,
  insert_id       VARCHAR(255),
  group_key       VARCHAR(255),
  created_at      BIGINT NOT NULL,
  available_after BIGINT NOT NULL,
  attempts        INT NOT NULL DEFAULT 0,
  crashes         SMALLINT NOT NULL DEFAULT 0,
  errors          MEDIUMTEXT,
  steps           MEDIUMTEXT,
  keyed           BOOLEAN NOT NULL DEFAULT FALSE,
  KEY {prefix}consumer_messages_due (keyed, crashes, consumer_type, payload_type, available_after, id),
  KEY {prefix}consumer_messages_group (group_key)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Which insert ids are pending, and for which message; what becomes of the message becomes of its
-- insert id. They are a primary key, since looking for a duplicate in any other index locks the gap
-- beside it, and with it the inserts of others.
CREATE TABLE IF NOT EXISTS {keys} (
  insert_id     VARCHAR(255) NOT NULL,
  consumer_type VARCHAR(255) NOT NULL,
  id            BIGINT,
  PRIMARY KEY (insert_id, consumer_type),
  KEY {prefix}pending_insert_ids_message (id),
  FOREIGN KEY (id) REFERENCES {messages} (id) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Who holds what: one row per leased batch. The ids are a JSON list, and so are their lanes, in the same order.
CREATE TABLE IF NOT EXISTS {claims} (
  id           BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  owner        VARCHAR(255) NOT NULL,
  solo         BOOLEAN NOT NULL,
  claimed_at   BIGINT NOT NULL,
  leased_until BIGINT NOT NULL,
  leased_for   BIGINT,
  message_ids  LONGTEXT NOT NULL CHECK (JSON_LENGTH(message_ids) > 0 AND INSTR(message_ids, 'null') = 0),
  consumer_type VARCHAR(255),
  lanes         LONGTEXT,
  CONSTRAINT {prefix}message_claims_lanes CHECK (JSON_LENGTH(lanes) = JSON_LENGTH(message_ids))
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- What has used up its attempts, or its owners' lives. A row that parks keeps the messages of its lane from running.
CREATE TABLE IF NOT EXISTS {poisoned} (
  id              BIGINT NOT NULL PRIMARY KEY,
  message_id      CHAR(36) NOT NULL,
  consumer_type   VARCHAR(255) NOT NULL,
  payload_type    VARCHAR(255) NOT NULL,
  payload         LONGTEXT NOT NULL,
  headers         MEDIUMTEXT,
  insert_id       VARCHAR(255),
  group_key       VARCHAR(255),
  created_at      BIGINT NOT NULL,
  available_after BIGINT NOT NULL,
  attempts        INT NOT NULL,
  crashes         SMALLINT NOT NULL,
  errors          MEDIUMTEXT,
  steps           MEDIUMTEXT,
  poisoned_at     BIGINT NOT NULL,
  reason          TEXT NOT NULL,
  order_key       VARCHAR(255),
  lane            BIGINT,
  `rank`          BIGINT,
  parks           BOOLEAN,
  fingerprint     VARCHAR(32),
  KEY {prefix}poisoned_messages_consumer (consumer_type, poisoned_at),
  KEY {prefix}poisoned_messages_newest (poisoned_at, id),
  KEY {prefix}poisoned_messages_waited (group_key),
  KEY {prefix}poisoned_messages_group (consumer_type, fingerprint, id),
  KEY {prefix}poisoned_messages_message (message_id),
  KEY {prefix}poisoned_messages_kind (consumer_type, payload_type),
  KEY {prefix}poisoned_messages_parks (lane, consumer_type, parks)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Groups of messages that have a payload to produce once no message of consumer_messages has their key. The messages
-- to insert then are a JSON list; in place of them, if there are any, those of poisoned if a member is poisoned.
CREATE TABLE IF NOT EXISTS {groups} (
  name       VARCHAR(255) NOT NULL PRIMARY KEY,
  id         CHAR(36) NOT NULL,
  messages   LONGTEXT NOT NULL,
  poisoned   LONGTEXT,
  created_at BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- What was consumed, of consumers that keep it: until expires_at. A row has the id of its message. Started_at is
-- when the last run began, if it did.
CREATE TABLE IF NOT EXISTS {consumed} (
  id            BIGINT NOT NULL,
  message_id    CHAR(36) NOT NULL,
  consumer_type VARCHAR(255) NOT NULL,
  payload_type  VARCHAR(255) NOT NULL,
  payload       LONGTEXT,
  headers       MEDIUMTEXT,
  order_key     VARCHAR(255),
  any_order     BOOLEAN NOT NULL,
  created_at    BIGINT NOT NULL,
  attempts      INT NOT NULL,
  outcome       VARCHAR(16) NOT NULL,
  reason        MEDIUMTEXT,
  version       VARCHAR(255) NOT NULL,
  started_at    BIGINT,
  run_micros    BIGINT NOT NULL,
  finished_at   BIGINT NOT NULL,
  expires_at    BIGINT NOT NULL,
  PRIMARY KEY (id, message_id),
  KEY {prefix}consumed_messages_consumer (consumer_type, finished_at, id),
  KEY {prefix}consumed_messages_newest (finished_at, id),
  KEY {prefix}consumed_messages_message (message_id),
  KEY {prefix}consumed_messages_keyed (order_key, finished_at, id),
  KEY {prefix}consumed_messages_expires (expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Schedules, which make messages at available_after, or once for run_at, when a run was
-- requested. One that could not fire does not before retry_at; both times stay as they are.
CREATE TABLE IF NOT EXISTS {schedules} (
  id              BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name            VARCHAR(255) UNIQUE,
  tag             VARCHAR(255),
  payload_type    VARCHAR(255) NOT NULL,
  payload         LONGTEXT NOT NULL,
  headers         MEDIUMTEXT,
  cron_expression TEXT NOT NULL,
  cron_timezone   TEXT NOT NULL,
  available_after BIGINT NOT NULL,
  run_at          BIGINT,
  retry_at        BIGINT,
  paused          BOOLEAN NOT NULL DEFAULT FALSE,
  last_fired_at   BIGINT,
  last_error      MEDIUMTEXT,
  created_at      BIGINT NOT NULL,
  KEY {prefix}scheduled_messages_due (paused, available_after),
  KEY {prefix}scheduled_messages_asked (run_at),
  KEY {prefix}scheduled_messages_retried (retry_at),
  KEY {prefix}scheduled_messages_tag (tag)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Consumers, by their stored names, of which no message may be claimed.
CREATE TABLE IF NOT EXISTS {paused} (
  consumer_type VARCHAR(255) NOT NULL PRIMARY KEY,
  paused_at     BIGINT NOT NULL,
  paused_by     VARCHAR(255) NOT NULL DEFAULT '',
  note          VARCHAR(1000) NOT NULL DEFAULT ''
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Who may run consumers with a limit over all processes: each row is one that runs, for whoever
-- has leased it.
CREATE TABLE IF NOT EXISTS {slots} (
  name         VARCHAR(255) NOT NULL,
  n            INT NOT NULL,
  owner        VARCHAR(255) NOT NULL,
  leased_until BIGINT NOT NULL,
  leased_for   BIGINT,
  PRIMARY KEY (name, n)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- How far the rates of consumers are spent: the instant up to which what was claimed has used them.
CREATE TABLE IF NOT EXISTS {rates} (
  name    VARCHAR(255) PRIMARY KEY NOT NULL,
  used_to BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Claimed messages whose runs people ask to end, and what came of that.
CREATE TABLE IF NOT EXISTS {stops} (
  message_id BIGINT PRIMARY KEY NOT NULL,
  owner      VARCHAR(255) NOT NULL,
  asked_at   BIGINT NOT NULL,
  outcome    VARCHAR(255)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- What runs of consumers with a breaker have come to, in two halves of its window, and until when
-- it is open.
CREATE TABLE IF NOT EXISTS {breakers} (
  name        VARCHAR(255) PRIMARY KEY NOT NULL,
  half_since  BIGINT NOT NULL,
  done        BIGINT NOT NULL DEFAULT 0,
  failed      BIGINT NOT NULL DEFAULT 0,
  was_done    BIGINT NOT NULL DEFAULT 0,
  was_failed  BIGINT NOT NULL DEFAULT 0,
  opened      INT NOT NULL DEFAULT 0,
  opened_at   BIGINT,
  open_until  BIGINT
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Messages that are to run in the order of their keys. A lane stands for a key, and a rank
-- for a place in it: the id of the message, but of one that was requeued the rank that it had.
-- They are in a table of their own, since an index has all rows of a table here, and those
-- without keys would be in it. What becomes of the message becomes of its row there.
CREATE TABLE IF NOT EXISTS {lanes} (
  id            BIGINT NOT NULL PRIMARY KEY,
  consumer_type VARCHAR(255) NOT NULL,
  lane          BIGINT NOT NULL,
  `rank`        BIGINT NOT NULL,
  order_key     VARCHAR(255) NOT NULL,
  KEY {prefix}message_lanes_lane (consumer_type, lane, `rank`),
  KEY {prefix}message_lanes_ranked (consumer_type, `rank`, lane),
  FOREIGN KEY (id) REFERENCES {messages} (id) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Whoever claims messages with keys holds the row of their consumer meanwhile.
CREATE TABLE IF NOT EXISTS {gates} (
  consumer_type VARCHAR(255) NOT NULL PRIMARY KEY,
  parks         BOOLEAN NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Which records of a broker each receiver has taken over, for as long as they might be delivered
-- again. A hash stands for the record's source and id.
CREATE TABLE IF NOT EXISTS {inbox} (
  receiver    VARCHAR(255) NOT NULL,
  hash        BINARY(16) NOT NULL,
  received_at BIGINT NOT NULL,
  PRIMARY KEY (receiver, hash),
  KEY {prefix}inbox_messages_received (receiver, received_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- What operators look at: which processes there are, what has become of messages in each of the last
-- minutes, which failures belong together and since when, and who vanished with which message.
CREATE TABLE IF NOT EXISTS {processes} (
  id          VARCHAR(255) PRIMARY KEY NOT NULL,
  kind        VARCHAR(255) NOT NULL,
  host        VARCHAR(255) NOT NULL,
  pid         BIGINT NOT NULL,
  program     VARCHAR(255) NOT NULL,
  version     VARCHAR(255) NOT NULL,
  started_at  BIGINT NOT NULL,
  seen_at     BIGINT NOT NULL,
  stopped_at  BIGINT,
  manifest    LONGTEXT NOT NULL,
  state       LONGTEXT NOT NULL,
  contract    LONGTEXT,
  KEY {prefix}message_processes_seen (seen_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS {minutes} (
  consumer_type VARCHAR(255) NOT NULL,
  minute        BIGINT NOT NULL,
  done BIGINT NOT NULL DEFAULT 0, retried BIGINT NOT NULL DEFAULT 0, poisoned BIGINT NOT NULL DEFAULT 0,
  snoozed BIGINT NOT NULL DEFAULT 0, discarded BIGINT NOT NULL DEFAULT 0,
  run_0 INT NOT NULL DEFAULT 0, run_1 INT NOT NULL DEFAULT 0, run_2 INT NOT NULL DEFAULT 0,
  run_3 INT NOT NULL DEFAULT 0, run_4 INT NOT NULL DEFAULT 0, run_5 INT NOT NULL DEFAULT 0,
  run_6 INT NOT NULL DEFAULT 0, run_7 INT NOT NULL DEFAULT 0, run_8 INT NOT NULL DEFAULT 0,
  run_9 INT NOT NULL DEFAULT 0, run_10 INT NOT NULL DEFAULT 0, run_11 INT NOT NULL DEFAULT 0,
  lag_0 INT NOT NULL DEFAULT 0, lag_1 INT NOT NULL DEFAULT 0, lag_2 INT NOT NULL DEFAULT 0,
  lag_3 INT NOT NULL DEFAULT 0, lag_4 INT NOT NULL DEFAULT 0, lag_5 INT NOT NULL DEFAULT 0,
  lag_6 INT NOT NULL DEFAULT 0, lag_7 INT NOT NULL DEFAULT 0, lag_8 INT NOT NULL DEFAULT 0,
  lag_9 INT NOT NULL DEFAULT 0, lag_10 INT NOT NULL DEFAULT 0, lag_11 INT NOT NULL DEFAULT 0,
  PRIMARY KEY (consumer_type, minute),
  KEY {prefix}message_minutes_minute (minute)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS {failures} (
  consumer_type VARCHAR(255) NOT NULL,
  fingerprint   VARCHAR(32) NOT NULL,
  error_type    VARCHAR(255) NOT NULL,
  sample        TEXT NOT NULL,
  runs          BIGINT NOT NULL,
  first_at      BIGINT NOT NULL,
  last_at       BIGINT NOT NULL,
  first_version VARCHAR(255) NOT NULL,
  row_id        BIGINT NOT NULL,
  PRIMARY KEY (consumer_type, fingerprint),
  KEY {prefix}message_failures_last (last_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS {crashes} (
  id            BIGINT AUTO_INCREMENT PRIMARY KEY,
  row_id        BIGINT NOT NULL,
  consumer_type VARCHAR(255) NOT NULL,
  owner         VARCHAR(255) NOT NULL,
  solo          BOOLEAN NOT NULL,
  crashed_at    BIGINT NOT NULL,
  KEY {prefix}message_crashes_row (row_id),
  KEY {prefix}message_crashes_at (crashed_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- What has become of each schedule's last fires, a JSON list. What becomes of the schedule
-- becomes of its row here.
CREATE TABLE IF NOT EXISTS {fires} (
  schedule_id BIGINT NOT NULL PRIMARY KEY,
  recent      MEDIUMTEXT NOT NULL,
  FOREIGN KEY (schedule_id) REFERENCES {schedules} (id) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- What people have changed and are changing: who, why, what, how far it is, and how many processes in a row have
-- died while they ran it.
CREATE TABLE IF NOT EXISTS {operations} (
  id           BIGINT AUTO_INCREMENT PRIMARY KEY,
  kind         VARCHAR(255) NOT NULL,
  actor        VARCHAR(255) NOT NULL,
  reason       TEXT NOT NULL,
  target       LONGTEXT NOT NULL,
  preview      LONGTEXT NOT NULL,
  state        VARCHAR(32) NOT NULL,
  rate         BIGINT NOT NULL,
  canary       BIGINT NOT NULL,
  canaries     LONGTEXT NOT NULL,
  after_id     BIGINT NOT NULL,
  up_to_id     BIGINT NOT NULL,
  changed      BIGINT NOT NULL,
  left_alone   BIGINT NOT NULL,
  note         TEXT NOT NULL,
  leased_by    VARCHAR(255),
  leased_until BIGINT,
  created_at   BIGINT NOT NULL,
  starts_at    BIGINT,
  finished_at  BIGINT,
  deaths       BIGINT NOT NULL DEFAULT 0,
  KEY {prefix}message_operations_state (state, id),
  KEY {prefix}message_operations_created (created_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Which types of events the instances of each receiver accept, and their consumers, after a tab: one that lacks a
-- type or a consumer leaves its records to others.
CREATE TABLE IF NOT EXISTS {inbox types} (
  receiver   VARCHAR(255) NOT NULL,
  event_type VARCHAR(511) NOT NULL,
  until      BIGINT NOT NULL,
  PRIMARY KEY (receiver, event_type)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (1, CURRENT_TIMESTAMP);
