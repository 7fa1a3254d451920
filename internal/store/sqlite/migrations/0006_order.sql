-- Messages that are to run in the order of their keys. Their crashes are counted from -10000,
-- so that what knows nothing of keys does not find them. A lane stands for a key, and a rank
-- for a place in it. The columns are NULL, and the indexes empty, where there are no keys.
ALTER TABLE {messages} ADD COLUMN order_key TEXT;
ALTER TABLE {messages} ADD COLUMN lane INTEGER;
ALTER TABLE {messages} ADD COLUMN rank INTEGER;

-- Ids grow in the order of commits, since there is one writer at a time.
CREATE TRIGGER "{prefix}consumer_messages_rank" AFTER INSERT ON {messages} WHEN NEW.lane IS NOT NULL AND NEW.rank IS NULL
BEGIN UPDATE {messages} SET rank = NEW.id WHERE id = NEW.id; END;

-- A program that knows no keys may give a message without one the crashes of a message with one.
CREATE TRIGGER "{prefix}consumer_messages_unkeyed" AFTER UPDATE OF crashes ON {messages} WHEN NEW.crashes < 0 AND NEW.lane IS NULL
BEGIN UPDATE {messages} SET crashes = NEW.crashes + 10000 WHERE id = NEW.id; END;

CREATE INDEX "{prefix}consumer_messages_lane" ON {messages} (consumer_type, lane, rank) WHERE lane IS NOT NULL;
CREATE INDEX "{prefix}consumer_messages_ranked" ON {messages} (consumer_type, rank) WHERE crashes < 0;
CREATE INDEX "{prefix}consumer_messages_stuck" ON {messages} (consumer_type, rank) WHERE crashes < 0 AND crashes > -10000;

-- Of each message in the claim the lane, in the same order.
ALTER TABLE {claims} ADD COLUMN consumer_type TEXT;
ALTER TABLE {claims} ADD COLUMN lanes TEXT CHECK (json_array_length(lanes) = json_array_length(message_ids));

-- A poisoned message that parks keeps those of its lane from running.
ALTER TABLE {poisoned} ADD COLUMN order_key TEXT;
ALTER TABLE {poisoned} ADD COLUMN lane INTEGER;
ALTER TABLE {poisoned} ADD COLUMN rank INTEGER;
ALTER TABLE {poisoned} ADD COLUMN parks BOOLEAN;
CREATE INDEX "{prefix}poisoned_messages_parks" ON {poisoned} (consumer_type, lane) WHERE parks;

-- What becomes of a lane when one of its messages is poisoned.
CREATE TABLE {gates} (
  consumer_type TEXT PRIMARY KEY NOT NULL,
  parks         BOOLEAN NOT NULL
);

INSERT INTO {migrations} (version, applied_at) VALUES (6, CURRENT_TIMESTAMP);
