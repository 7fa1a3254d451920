-- Messages that come before others of their consumer: NULL is the normal priority. They are in
-- the other index as well.
ALTER TABLE {messages} ADD priority smallint;
CREATE INDEX "{prefix}consumer_messages_prior" ON {messages} (consumer_type, payload_type, priority, available_after, id) WHERE crashes = 0 AND priority > 0;

INSERT INTO {migrations} (version, applied_at) VALUES (8, CURRENT_TIMESTAMP);
