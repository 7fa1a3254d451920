-- Which records of a broker each receiver has taken over, for as long as they might be delivered
-- again. A hash stands for the record's source and id.
CREATE TABLE {inbox} (
  receiver    TEXT NOT NULL,
  hash        BLOB NOT NULL,
  received_at INTEGER NOT NULL,
  PRIMARY KEY (receiver, hash)
) WITHOUT ROWID;

CREATE INDEX "{prefix}inbox_messages_received" ON {inbox} (receiver, received_at);

INSERT INTO {migrations} (version, applied_at) VALUES (11, CURRENT_TIMESTAMP);
