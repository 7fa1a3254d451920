-- Which types of events the instances of each receiver accept: one that lacks a type leaves its records to others.
-- Every statement can be run again.
CREATE TABLE IF NOT EXISTS {inbox types} (
  receiver   VARCHAR(255) NOT NULL,
  event_type VARCHAR(255) NOT NULL,
  until      BIGINT NOT NULL,
  PRIMARY KEY (receiver, event_type)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (17, CURRENT_TIMESTAMP);
