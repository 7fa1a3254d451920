-- Consumers, by their stored names, of which no message may be claimed.
CREATE TABLE IF NOT EXISTS {paused} (
  consumer_type VARCHAR(255) NOT NULL PRIMARY KEY,
  paused_at     BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (2, CURRENT_TIMESTAMP);
