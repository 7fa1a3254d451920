-- Instants are microseconds since 1970-01-01 UTC: FROM_UNIXTIME(available_after / 1e6) reads one.
-- Text is compared by its bytes, trailing spaces included. Every statement can be run again: here
-- each commits by itself, so a migration may have been interrupted.

-- Which migrations have been applied.
CREATE TABLE IF NOT EXISTS {migrations} (version INT PRIMARY KEY, applied_at TIMESTAMP NOT NULL) ENGINE = InnoDB;

-- What waits to be consumed: one row per message and consumer. Crashes come first in the index,
-- so that those that crashed stand apart from the others; the payload type is there to be read.
CREATE TABLE IF NOT EXISTS {messages} (
  id              BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  message_id      CHAR(36) NOT NULL,
  consumer_type   VARCHAR(255) NOT NULL,
  payload_type    VARCHAR(255) NOT NULL,
  payload         LONGTEXT NOT NULL,
  headers         MEDIUMTEXT,
  insert_id       VARCHAR(255),
  created_at      BIGINT NOT NULL,
  available_after BIGINT NOT NULL,
  attempts        INT NOT NULL DEFAULT 0,
  crashes         SMALLINT NOT NULL DEFAULT 0,
  errors          MEDIUMTEXT,
  KEY {prefix}consumer_messages_due (crashes, consumer_type, available_after, id, payload_type)
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

-- Who holds what: one row per leased batch. The ids are a JSON list.
CREATE TABLE IF NOT EXISTS {claims} (
  id           BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  owner        VARCHAR(255) NOT NULL,
  solo         BOOLEAN NOT NULL,
  claimed_at   BIGINT NOT NULL,
  leased_until BIGINT NOT NULL,
  message_ids  LONGTEXT NOT NULL CHECK (JSON_LENGTH(message_ids) > 0 AND INSTR(message_ids, 'null') = 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- What has used up its attempts, or its owners' lives.
CREATE TABLE IF NOT EXISTS {poisoned} (
  id              BIGINT NOT NULL PRIMARY KEY,
  message_id      CHAR(36) NOT NULL,
  consumer_type   VARCHAR(255) NOT NULL,
  payload_type    VARCHAR(255) NOT NULL,
  payload         LONGTEXT NOT NULL,
  headers         MEDIUMTEXT,
  insert_id       VARCHAR(255),
  created_at      BIGINT NOT NULL,
  available_after BIGINT NOT NULL,
  attempts        INT NOT NULL,
  crashes         SMALLINT NOT NULL,
  errors          MEDIUMTEXT,
  poisoned_at     BIGINT NOT NULL,
  reason          TEXT NOT NULL,
  KEY {prefix}poisoned_messages_consumer (consumer_type, poisoned_at),
  KEY {prefix}poisoned_messages_newest (poisoned_at, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

-- Cron rows that turn into messages when due, or once at run_at when somebody
-- asks for that.
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
  paused          BOOLEAN NOT NULL DEFAULT FALSE,
  last_fired_at   BIGINT,
  last_error      MEDIUMTEXT,
  created_at      BIGINT NOT NULL,
  KEY {prefix}scheduled_messages_due (paused, available_after),
  KEY {prefix}scheduled_messages_asked (run_at),
  KEY {prefix}scheduled_messages_tag (tag)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (1, CURRENT_TIMESTAMP);
