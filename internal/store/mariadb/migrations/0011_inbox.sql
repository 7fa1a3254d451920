-- Which records of a broker each receiver has taken over, for as long as they might be delivered
-- again. A hash stands for the record's source and id. Every statement can be run again.
CREATE TABLE IF NOT EXISTS {inbox} (
  receiver    VARCHAR(255) NOT NULL,
  hash        BINARY(16) NOT NULL,
  received_at BIGINT NOT NULL,
  PRIMARY KEY (receiver, hash),
  KEY {prefix}inbox_messages_received (receiver, received_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (11, CURRENT_TIMESTAMP);
