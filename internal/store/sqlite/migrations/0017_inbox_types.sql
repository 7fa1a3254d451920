-- Which types of events the instances of each receiver accept: one that lacks a type leaves its records to others.
CREATE TABLE {inbox types} (
  receiver   TEXT NOT NULL,
  event_type TEXT NOT NULL,
  until      INTEGER NOT NULL,
  PRIMARY KEY (receiver, event_type)
) WITHOUT ROWID;

INSERT INTO {migrations} (version, applied_at) VALUES (17, CURRENT_TIMESTAMP);
