-- Claims look for one payload type at a time, so that messages which nobody takes are not in
-- anybody's way. The list of pending messages goes by both indexes.
DROP INDEX {due};
DROP INDEX {crashed};
CREATE INDEX "{prefix}consumer_messages_due" ON {messages} (consumer_type, payload_type, available_after, id) WHERE crashes = 0;
CREATE INDEX "{prefix}consumer_messages_crashed" ON {messages} (consumer_type, payload_type, available_after, id) WHERE crashes > 0;

INSERT INTO {migrations} (version, applied_at) VALUES (4, CURRENT_TIMESTAMP);
