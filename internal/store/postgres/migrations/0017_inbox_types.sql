-- Which types of events the instances of each receiver accept: one that lacks a type leaves its records to others.
CREATE TABLE {inbox types} (
  receiver   text NOT NULL,
  event_type text NOT NULL,
  until      timestamptz NOT NULL,
  PRIMARY KEY (receiver, event_type)
) WITH (fillfactor = 50);

INSERT INTO {migrations} (version, applied_at) VALUES (17, CURRENT_TIMESTAMP);
