-- Who may run consumers with a limit over all processes: each row is one that runs, for whoever
-- has leased it.
CREATE TABLE IF NOT EXISTS {slots} (
  name         VARCHAR(255) NOT NULL,
  n            INT NOT NULL,
  owner        VARCHAR(255) NOT NULL,
  leased_until BIGINT NOT NULL,
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

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (5, CURRENT_TIMESTAMP);
