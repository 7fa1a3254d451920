-- Which records of a broker each receiver has taken over, for as long as they might be delivered
-- again. A hash stands for the record's source and id.
CREATE TABLE {inbox} (
  receiver    text NOT NULL,
  hash        bytea NOT NULL,
  received_at timestamptz NOT NULL,
  PRIMARY KEY (receiver, hash)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX "{prefix}inbox_messages_received" ON {inbox} (receiver, received_at);

INSERT INTO {migrations} (version, applied_at) VALUES (11, CURRENT_TIMESTAMP);
