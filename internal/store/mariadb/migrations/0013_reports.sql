-- What operators look at: which processes there are, what has become of messages in each of the last
-- minutes, which failures belong together and since when, and who vanished with which message.
-- Every statement can be run again.
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

ALTER TABLE {poisoned} ADD COLUMN /*M! IF NOT EXISTS */ fingerprint VARCHAR(32);
ALTER TABLE {poisoned} ADD INDEX /*M! IF NOT EXISTS */ {prefix}poisoned_messages_group (consumer_type, fingerprint, id);
ALTER TABLE {poisoned} ADD INDEX /*M! IF NOT EXISTS */ {prefix}poisoned_messages_message (message_id);
ALTER TABLE {paused} ADD COLUMN /*M! IF NOT EXISTS */ paused_by VARCHAR(255) NOT NULL DEFAULT '';
ALTER TABLE {paused} ADD COLUMN /*M! IF NOT EXISTS */ note VARCHAR(1000) NOT NULL DEFAULT '';

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (13, CURRENT_TIMESTAMP);
