-- Up to which instant the rates of single keys are used. One that is in the past counts for nothing.
CREATE TABLE {key rates} (
  name    text NOT NULL,
  lane    bigint NOT NULL,
  used_to timestamptz NOT NULL,
  PRIMARY KEY (name, lane)
);
CREATE INDEX "{prefix}message_key_rates_used" ON {key rates} (name, used_to);

INSERT INTO {migrations} (version, applied_at) VALUES (10, CURRENT_TIMESTAMP);
