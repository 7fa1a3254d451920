-- Messages that are to run in the order of their keys. Their crashes are counted from -10000,
-- so that what knows nothing of keys does not find them. A lane stands for a key, and a rank
-- for a place in it: the id of the message, but of one that was requeued the rank that it had.
-- They are in a table of their own, since an index has all rows of a table here, and those
-- without keys would be in it. What becomes of the message becomes of its row there. Every
-- statement can be run again.
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

-- Of each message in the claim the lane, in the same order.
ALTER TABLE {claims} ADD COLUMN /*M! IF NOT EXISTS */ consumer_type VARCHAR(255), ADD COLUMN /*M! IF NOT EXISTS */ lanes LONGTEXT,
  ADD CONSTRAINT /*M! IF NOT EXISTS */ {prefix}message_claims_lanes CHECK (JSON_LENGTH(lanes) = JSON_LENGTH(message_ids));

-- A poisoned message that parks keeps those of its lane from running.
ALTER TABLE {poisoned} ADD COLUMN /*M! IF NOT EXISTS */ order_key VARCHAR(255), ADD COLUMN /*M! IF NOT EXISTS */ lane BIGINT,
  ADD COLUMN /*M! IF NOT EXISTS */ `rank` BIGINT, ADD COLUMN /*M! IF NOT EXISTS */ parks BOOLEAN,
  ADD INDEX /*M! IF NOT EXISTS */ {prefix}poisoned_messages_parks (lane, consumer_type, parks);

-- Whoever claims messages with keys holds the row of their consumer meanwhile.
CREATE TABLE IF NOT EXISTS {gates} (
  consumer_type VARCHAR(255) NOT NULL PRIMARY KEY,
  parks         BOOLEAN NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (9, CURRENT_TIMESTAMP);
