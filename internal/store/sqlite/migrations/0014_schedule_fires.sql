-- What has become of each schedule's last fires, a JSON list. It is a table of its own, since an older
-- program reads all columns of the other. What becomes of the schedule becomes of its row here.
CREATE TABLE {fires} (
  schedule_id INTEGER PRIMARY KEY NOT NULL,
  recent      TEXT NOT NULL
);
CREATE TRIGGER "{prefix}scheduled_messages_gone" AFTER DELETE ON {schedules}
BEGIN DELETE FROM {fires} WHERE schedule_id = OLD.id; END;

INSERT INTO {migrations} (version, applied_at) VALUES (14, CURRENT_TIMESTAMP);
