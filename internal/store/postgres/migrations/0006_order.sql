-- Messages that are to run in the order of their keys. Their crashes are counted from -10000,
-- so that what knows nothing of keys does not find them. A lane stands for a key, and a rank
-- for a place in it. The columns are NULL, and the indexes empty, where there are no keys.
ALTER TABLE {messages} ADD order_key text, ADD lane bigint, ADD rank bigint;

-- One number at a time: a session that had a block of them would break the order.
CREATE SEQUENCE {ranks} CACHE 1 OWNED BY {messages}.rank;

CREATE INDEX "{prefix}consumer_messages_lane" ON {messages} (consumer_type, lane, rank) WHERE lane IS NOT NULL;
CREATE INDEX "{prefix}consumer_messages_ranked" ON {messages} (consumer_type, rank) WHERE crashes < 0;
CREATE INDEX "{prefix}consumer_messages_stuck" ON {messages} (consumer_type, rank) WHERE crashes < 0 AND crashes > -10000;

-- Of each message in the claim the lane, in the same order. They are hashes, which do not compress.
ALTER TABLE {claims} ADD consumer_type text, ADD lanes bigint[] CHECK (cardinality(lanes) = cardinality(message_ids));
ALTER TABLE {claims} ALTER lanes SET STORAGE EXTERNAL;

-- A poisoned message that parks keeps those of its lane from running.
ALTER TABLE {poisoned} ADD order_key text, ADD lane bigint, ADD rank bigint, ADD parks boolean;
CREATE INDEX "{prefix}poisoned_messages_parks" ON {poisoned} (consumer_type, lane) WHERE parks;

-- Whoever claims messages with keys holds the row of their consumer meanwhile.
CREATE TABLE {gates} (
  consumer_type text PRIMARY KEY NOT NULL,
  parks         boolean NOT NULL
) WITH (fillfactor = 10);

INSERT INTO {migrations} (version, applied_at) VALUES (6, CURRENT_TIMESTAMP);
