-- What runs of consumers with a breaker have come to, in two halves of its window, and until when
-- it is open. Migration 6 is for databases with an order by keys.
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

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (7, CURRENT_TIMESTAMP);
