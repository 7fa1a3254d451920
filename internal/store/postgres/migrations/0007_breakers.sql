-- What runs of consumers with a breaker have come to, in two halves of its window, and until when
-- it is open.
CREATE TABLE {breakers} (
  name        text PRIMARY KEY NOT NULL,
  half_since  timestamptz NOT NULL,
  done        bigint NOT NULL DEFAULT 0,
  failed      bigint NOT NULL DEFAULT 0,
  was_done    bigint NOT NULL DEFAULT 0,
  was_failed  bigint NOT NULL DEFAULT 0,
  opened      int NOT NULL DEFAULT 0,
  opened_at   timestamptz,
  open_until  timestamptz
) WITH (fillfactor = 10);

INSERT INTO {migrations} (version, applied_at) VALUES (7, CURRENT_TIMESTAMP);
