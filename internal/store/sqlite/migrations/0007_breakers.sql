-- What runs of consumers with a breaker have come to, in two halves of its window, and until when
-- it is open.
CREATE TABLE {breakers} (
  name        TEXT PRIMARY KEY NOT NULL,
  half_since  INTEGER NOT NULL,
  done        INTEGER NOT NULL DEFAULT 0,
  failed      INTEGER NOT NULL DEFAULT 0,
  was_done    INTEGER NOT NULL DEFAULT 0,
  was_failed  INTEGER NOT NULL DEFAULT 0,
  opened      INTEGER NOT NULL DEFAULT 0,
  opened_at   INTEGER,
  open_until  INTEGER
);

INSERT INTO {migrations} (version, applied_at) VALUES (7, CURRENT_TIMESTAMP);
