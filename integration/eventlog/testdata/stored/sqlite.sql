BEGIN TRANSACTION;
CREATE TABLE "asyncmonolith_migrations" (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL);
INSERT INTO "asyncmonolith_migrations" VALUES(1,'2026-11-22 11:18:13');
INSERT INTO "asyncmonolith_migrations" VALUES(2,'2026-11-22 11:18:13');
INSERT INTO "asyncmonolith_migrations" VALUES(3,'2026-11-22 11:18:13');
INSERT INTO "asyncmonolith_migrations" VALUES(4,'2026-11-22 11:18:13');
CREATE TABLE "consumer_messages" (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  message_id      TEXT NOT NULL,
  consumer_type   TEXT NOT NULL,
  payload_type    TEXT NOT NULL,
  payload         TEXT NOT NULL,
  headers         TEXT,
  insert_id       TEXT,
  created_at      INTEGER NOT NULL,
  available_after INTEGER NOT NULL,
  attempts        INTEGER NOT NULL DEFAULT 0,
  crashes         INTEGER NOT NULL DEFAULT 0,
  errors          TEXT
);
INSERT INTO "consumer_messages" VALUES(1,'01a202fa-6496-70e6-8236-b78aef4867e0','again','note','{"text":"first"}','{"tenant":"ü"}',NULL,1795346293910000,1795346304030331,1,0,'[{"attempt":1,"at":"2026-11-22T11:18:13.918862957Z","error":"no such note"}]');
INSERT INTO "consumer_messages" VALUES(4,'01a202fa-649f-7bf5-8508-f6d843435e5c','again','note','{"text":"second"}',NULL,'k',1795346293919000,1795346293919000,0,0,NULL);
INSERT INTO "consumer_messages" VALUES(5,'01a202fa-649f-7bf5-8508-f6d843435e5c','keep','note','{"text":"second"}',NULL,'k',1795346293919000,1795346293919000,0,0,NULL);
INSERT INTO "consumer_messages" VALUES(6,'01a202fa-649f-7bf5-8508-f6d843435e5c','refuse','note','{"text":"second"}',NULL,'k',1795346293919000,1795346293919000,0,0,NULL);
INSERT INTO "consumer_messages" VALUES(7,'01a202fa-64a0-7178-a173-07f433eaa5e2','again','note','{"text":"later"}',NULL,NULL,1795346293920000,7258215845678900,0,0,NULL);
INSERT INTO "consumer_messages" VALUES(8,'01a202fa-64a0-7178-a173-07f433eaa5e2','keep','note','{"text":"later"}',NULL,NULL,1795346293920000,7258215845678900,0,0,NULL);
INSERT INTO "consumer_messages" VALUES(9,'01a202fa-64a0-7178-a173-07f433eaa5e2','refuse','note','{"text":"later"}',NULL,NULL,1795346293920000,7258215845678900,0,0,NULL);
INSERT INTO "consumer_messages" VALUES(10,'01a202fa-64a0-7438-abbc-f9a0762e08ec','again','note','{"text":"held"}',NULL,NULL,1795346293920000,1795346293920000,0,0,NULL);
INSERT INTO "consumer_messages" VALUES(11,'01a202fa-64a0-7438-abbc-f9a0762e08ec','keep','note','{"text":"held"}',NULL,NULL,1795346293920000,1795346293920000,0,0,NULL);
INSERT INTO "consumer_messages" VALUES(12,'01a202fa-64a0-7438-abbc-f9a0762e08ec','refuse','note','{"text":"held"}',NULL,NULL,1795346293920000,1795346293920000,0,0,NULL);
INSERT INTO "consumer_messages" VALUES(13,'01a202fa-64a4-7375-89f3-6e08867dca6d','react','account.moved','','{"asyncmonolith-event":"2 12"}',NULL,1795346293925000,1795346293925000,0,0,NULL);
INSERT INTO "consumer_messages" VALUES(14,'01a202fa-64a6-7387-a4d4-6079d3da4d18','react','account.moved','','{"asyncmonolith-event":"4 12"}',NULL,1795346293927000,1795346293927000,0,0,NULL);
CREATE TABLE "event_parked" (
  name      TEXT NOT NULL,
  version   INTEGER NOT NULL,
  position  INTEGER NOT NULL,
  stream    TEXT NOT NULL,
  reason    TEXT NOT NULL,
  parked_at INTEGER NOT NULL,
  PRIMARY KEY (name, version, position)
);
CREATE TABLE "event_projections" (
  name           TEXT PRIMARY KEY,
  active_version INTEGER NOT NULL
);
CREATE TABLE "event_snapshots" (
  stream     TEXT NOT NULL,
  kind       TEXT NOT NULL,
  version    INTEGER NOT NULL,
  state      TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (stream, kind)
);
INSERT INTO "event_snapshots" VALUES('account-1','balance/1',2,'{"balance":5}',1795346293927000);
CREATE TABLE "event_streams" (
  stream     TEXT PRIMARY KEY,
  category   TEXT NOT NULL,
  version    INTEGER NOT NULL,
  closed     INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "event_streams" VALUES('account-1','account',3,0,1795346293924000);
INSERT INTO "event_streams" VALUES('account-2','account',1,0,1795346293925000);
CREATE TABLE "event_subscriptions" (
  name         TEXT NOT NULL,
  version      INTEGER NOT NULL,
  shard        INTEGER NOT NULL,
  shards       INTEGER NOT NULL,
  filter       TEXT NOT NULL,
  position     INTEGER NOT NULL,
  replay_until INTEGER NOT NULL DEFAULT 0,
  status       TEXT NOT NULL,
  attempts     INTEGER NOT NULL DEFAULT 0,
  next_at      INTEGER NOT NULL,
  last_error   TEXT,
  moved_at     INTEGER NOT NULL,
  PRIMARY KEY (name, version, shard)
);
CREATE TABLE "events" (
  sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id    TEXT NOT NULL,
  stream      TEXT NOT NULL,
  version     INTEGER NOT NULL,
  category    TEXT NOT NULL,
  slot        INTEGER NOT NULL,
  event_type  TEXT NOT NULL,
  schema      INTEGER NOT NULL,
  data        TEXT,
  headers     TEXT,
  recorded_at INTEGER NOT NULL,
  UNIQUE (stream, version)
);
INSERT INTO "events" VALUES(1,'01a202fa-64a4-7364-891f-09b9b0e67d87','account-1',1,'account',22,'account.opened',1,'{"owner":"ann"}',NULL,1795346293925000);
INSERT INTO "events" VALUES(2,'01a202fa-64a4-7375-89f3-6e08867dca6d','account-1',2,'account',22,'account.moved',1,'{"amount":5}',NULL,1795346293925000);
INSERT INTO "events" VALUES(3,'01a202fa-64a5-7d0d-b861-7b5b7122ae6e','account-2',1,'account',3,'account.opened',1,'{"owner":"bob"}',NULL,1795346293926000);
INSERT INTO "events" VALUES(4,'01a202fa-64a6-7387-a4d4-6079d3da4d18','account-1',3,'account',22,'account.moved',1,'{"amount":7}',NULL,1795346293926000);
CREATE TABLE "message_claims" (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  owner        TEXT NOT NULL,
  solo         INTEGER NOT NULL,
  claimed_at   INTEGER NOT NULL,
  leased_until INTEGER NOT NULL,
  message_ids  TEXT NOT NULL CHECK (json_array_length(message_ids) > 0 AND instr(message_ids, 'null') = 0)
);
INSERT INTO "message_claims" VALUES(4,'vanished',0,1795346293921000,1795346294921000,'[5]');
CREATE TABLE "paused_consumers" (
  consumer_type TEXT PRIMARY KEY NOT NULL,
  paused_at     INTEGER NOT NULL
);
INSERT INTO "paused_consumers" VALUES('again',1795346293921000);
CREATE TABLE "poisoned_messages" (
  id              INTEGER PRIMARY KEY,
  message_id      TEXT NOT NULL,
  consumer_type   TEXT NOT NULL,
  payload_type    TEXT NOT NULL,
  payload         TEXT NOT NULL,
  headers         TEXT,
  insert_id       TEXT,
  created_at      INTEGER NOT NULL,
  available_after INTEGER NOT NULL,
  attempts        INTEGER NOT NULL,
  crashes         INTEGER NOT NULL,
  errors          TEXT,
  poisoned_at     INTEGER NOT NULL,
  reason          TEXT NOT NULL
);
INSERT INTO "poisoned_messages" VALUES(3,'01a202fa-6496-70e6-8236-b78aef4867e0','refuse','note','{"text":"first"}','{"tenant":"ü"}',NULL,1795346293910000,1795346293910000,1,0,'[{"attempt":1,"at":"2026-11-22T11:18:13.915894169Z","error":"no such note"}]',1795346293916000,'permanent error');
CREATE TABLE "scheduled_messages" (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  name            TEXT UNIQUE,
  tag             TEXT,
  payload_type    TEXT NOT NULL,
  payload         TEXT NOT NULL,
  headers         TEXT,
  cron_expression TEXT NOT NULL,
  cron_timezone   TEXT NOT NULL,
  available_after INTEGER NOT NULL,
  run_at          INTEGER,
  paused          INTEGER NOT NULL DEFAULT 0,
  last_fired_at   INTEGER,
  last_error      TEXT,
  created_at      INTEGER NOT NULL
);
INSERT INTO "scheduled_messages" VALUES(1,'daily','t','note','{"text":"daily"}',NULL,'0 30 2 * * *','Europe/Berlin',1795397400000000,NULL,0,NULL,NULL,1795346293922000);
INSERT INTO "scheduled_messages" VALUES(2,'paused',NULL,'note','{"text":"paused"}',NULL,'@hourly','UTC',1795348800000000,NULL,1,NULL,NULL,1795346293922000);
CREATE UNIQUE INDEX "consumer_messages_insert_id" ON "consumer_messages" (insert_id, consumer_type) WHERE insert_id IS NOT NULL;
CREATE INDEX "poisoned_messages_consumer" ON "poisoned_messages" (consumer_type, poisoned_at);
CREATE INDEX "poisoned_messages_newest" ON "poisoned_messages" (poisoned_at, id);
CREATE INDEX "scheduled_messages_due" ON "scheduled_messages" (available_after) WHERE NOT paused;
CREATE INDEX "scheduled_messages_asked" ON "scheduled_messages" (run_at) WHERE run_at IS NOT NULL;
CREATE INDEX "scheduled_messages_tag" ON "scheduled_messages" (tag);
CREATE INDEX "event_parked_stream" ON "event_parked" (name, version, stream);
CREATE INDEX "consumer_messages_due" ON "consumer_messages" (consumer_type, payload_type, available_after, id) WHERE crashes = 0;
CREATE INDEX "consumer_messages_crashed" ON "consumer_messages" (consumer_type, payload_type, available_after, id) WHERE crashes > 0;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('consumer_messages',14);
INSERT INTO "sqlite_sequence" VALUES('message_claims',4);
INSERT INTO "sqlite_sequence" VALUES('scheduled_messages',2);
INSERT INTO "sqlite_sequence" VALUES('events',4);
COMMIT;
