-- What people have changed and are changing: who, why, what, and how far it is.
-- Every statement can be run again.
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
  KEY {prefix}message_operations_state (state, id),
  KEY {prefix}message_operations_created (created_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (15, CURRENT_TIMESTAMP);
