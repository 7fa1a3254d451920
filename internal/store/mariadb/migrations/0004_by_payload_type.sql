-- Claims look for one payload type at a time, so that messages which nobody takes are not in
-- anybody's way. One statement, which can be run again.
ALTER TABLE {messages} DROP INDEX {prefix}consumer_messages_due,
  ADD INDEX {prefix}consumer_messages_due (crashes, consumer_type, payload_type, available_after, id);

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (4, CURRENT_TIMESTAMP);
