-- What has become of each schedule's last fires, a JSON list. It is a table of its own, since an older
-- program reads all columns of the other. What becomes of the schedule becomes of its row here.
-- Every statement can be run again.
CREATE TABLE IF NOT EXISTS {fires} (
  schedule_id BIGINT NOT NULL PRIMARY KEY,
  recent      MEDIUMTEXT NOT NULL,
  FOREIGN KEY (schedule_id) REFERENCES {schedules} (id) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */;

INSERT IGNORE INTO {migrations} (version, applied_at) VALUES (14, CURRENT_TIMESTAMP);
