-- What has become of each schedule's last fires, a JSON list. It is a table of its own, since an older
-- program reads all columns of the other. What becomes of the schedule becomes of its row here.
CREATE TABLE {fires} (
  schedule_id bigint PRIMARY KEY REFERENCES {schedules} (id) ON DELETE CASCADE,
  recent      text NOT NULL
) WITH (fillfactor = 50);

INSERT INTO {migrations} (version, applied_at) VALUES (14, CURRENT_TIMESTAMP);
