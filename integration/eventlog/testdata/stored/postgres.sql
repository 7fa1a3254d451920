CREATE TABLE public.asyncmonolith_migrations (
    version integer NOT NULL,
    applied_at timestamp with time zone NOT NULL
);
CREATE TABLE public.consumer_messages (
    id bigint NOT NULL,
    message_id uuid NOT NULL,
    consumer_type text NOT NULL,
    payload_type text NOT NULL,
    payload text NOT NULL,
    headers text,
    insert_id text,
    created_at timestamp with time zone NOT NULL,
    available_after timestamp with time zone NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    errors text
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='10000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='20000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE public.consumer_messages ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.consumer_messages_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.event_head (
    id smallint NOT NULL,
    "position" bigint NOT NULL,
    CONSTRAINT event_head_id_check CHECK ((id = 1))
)
WITH (fillfactor='10');
CREATE TABLE public.event_parked (
    name text NOT NULL,
    version integer NOT NULL,
    "position" bigint NOT NULL,
    stream text NOT NULL,
    reason text NOT NULL,
    parked_at timestamp with time zone NOT NULL
);
CREATE TABLE public.event_projections (
    name text NOT NULL,
    active_version integer NOT NULL
);
CREATE TABLE public.event_snapshots (
    stream text NOT NULL,
    kind text NOT NULL,
    version bigint NOT NULL,
    state text NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.event_streams (
    stream text NOT NULL,
    category text NOT NULL,
    version bigint NOT NULL,
    closed boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone NOT NULL
)
WITH (fillfactor='80');
CREATE TABLE public.event_subscriptions (
    name text NOT NULL,
    version integer NOT NULL,
    shard smallint NOT NULL,
    shards smallint NOT NULL,
    filter text NOT NULL,
    "position" bigint NOT NULL,
    replay_until bigint DEFAULT 0 NOT NULL,
    status text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    next_at timestamp with time zone NOT NULL,
    last_error text,
    moved_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.events (
    sequence bigint NOT NULL,
    "position" bigint,
    event_id uuid NOT NULL,
    stream text NOT NULL,
    version bigint NOT NULL,
    category text NOT NULL,
    slot smallint NOT NULL,
    event_type text NOT NULL,
    schema smallint NOT NULL,
    data text,
    headers text,
    recorded_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_insert_scale_factor='0.02', autovacuum_analyze_scale_factor='0.02');
ALTER TABLE public.events ALTER COLUMN sequence ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.events_sequence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.message_claims (
    id bigint NOT NULL,
    owner text NOT NULL,
    solo boolean NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    leased_until timestamp with time zone NOT NULL,
    message_ids bigint[] NOT NULL,
    CONSTRAINT message_claims_message_ids_check CHECK (((cardinality(message_ids) > 0) AND (array_position(message_ids, NULL::bigint) IS NULL)))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE public.message_claims ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.message_claims_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.paused_consumers (
    consumer_type text NOT NULL,
    paused_at timestamp with time zone NOT NULL
);
CREATE TABLE public.poisoned_messages (
    id bigint NOT NULL,
    message_id uuid NOT NULL,
    consumer_type text NOT NULL,
    payload_type text NOT NULL,
    payload text NOT NULL,
    headers text,
    insert_id text,
    created_at timestamp with time zone NOT NULL,
    available_after timestamp with time zone NOT NULL,
    attempts integer NOT NULL,
    crashes smallint NOT NULL,
    errors text,
    poisoned_at timestamp with time zone NOT NULL,
    reason text NOT NULL
);
CREATE TABLE public.scheduled_messages (
    id bigint NOT NULL,
    name text,
    tag text,
    payload_type text NOT NULL,
    payload text NOT NULL,
    headers text,
    cron_expression text NOT NULL,
    cron_timezone text NOT NULL,
    available_after timestamp with time zone NOT NULL,
    run_at timestamp with time zone,
    paused boolean DEFAULT false NOT NULL,
    last_fired_at timestamp with time zone,
    last_error text,
    created_at timestamp with time zone NOT NULL
);
ALTER TABLE public.scheduled_messages ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.scheduled_messages_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
INSERT INTO public.asyncmonolith_migrations (version, applied_at) VALUES (1, '2026-11-22 11:18:13.447426+00');
INSERT INTO public.asyncmonolith_migrations (version, applied_at) VALUES (2, '2026-11-22 11:18:13.447426+00');
INSERT INTO public.asyncmonolith_migrations (version, applied_at) VALUES (3, '2026-11-22 11:18:13.447426+00');
INSERT INTO public.asyncmonolith_migrations (version, applied_at) VALUES (4, '2026-11-22 11:18:13.447426+00');
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (1, '01a202fa-639b-75d5-8f79-22febf1febd3', 'again', 'note', '{"text":"first"}', '{"tenant":"ü"}', NULL, '2026-11-22 11:18:13.659619+00', '2026-11-22 11:18:27.807288+00', 1, 0, '[{"attempt":1,"at":"2026-11-22T11:18:13.692447091Z","error":"no such note"}]');
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (4, '01a202fa-63c0-741b-af73-fed6081084ff', 'again', 'note', '{"text":"second"}', NULL, 'k', '2026-11-22 11:18:13.697121+00', '2026-11-22 11:18:13.697121+00', 0, 0, NULL);
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (5, '01a202fa-63c0-741b-af73-fed6081084ff', 'keep', 'note', '{"text":"second"}', NULL, 'k', '2026-11-22 11:18:13.697121+00', '2026-11-22 11:18:13.697121+00', 0, 0, NULL);
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (6, '01a202fa-63c0-741b-af73-fed6081084ff', 'refuse', 'note', '{"text":"second"}', NULL, 'k', '2026-11-22 11:18:13.697121+00', '2026-11-22 11:18:13.697121+00', 0, 0, NULL);
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (7, '01a202fa-63c2-787d-a71e-9616d8f0845e', 'again', 'note', '{"text":"later"}', NULL, NULL, '2026-11-22 11:18:13.698693+00', '2200-01-02 03:04:05.6789+00', 0, 0, NULL);
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (8, '01a202fa-63c2-787d-a71e-9616d8f0845e', 'keep', 'note', '{"text":"later"}', NULL, NULL, '2026-11-22 11:18:13.698693+00', '2200-01-02 03:04:05.6789+00', 0, 0, NULL);
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (9, '01a202fa-63c2-787d-a71e-9616d8f0845e', 'refuse', 'note', '{"text":"later"}', NULL, NULL, '2026-11-22 11:18:13.698693+00', '2200-01-02 03:04:05.6789+00', 0, 0, NULL);
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (10, '01a202fa-63c3-7d3b-8fe6-223fd6e25abe', 'again', 'note', '{"text":"held"}', NULL, NULL, '2026-11-22 11:18:13.69997+00', '2026-11-22 11:18:13.69997+00', 0, 0, NULL);
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (11, '01a202fa-63c3-7d3b-8fe6-223fd6e25abe', 'keep', 'note', '{"text":"held"}', NULL, NULL, '2026-11-22 11:18:13.69997+00', '2026-11-22 11:18:13.69997+00', 0, 0, NULL);
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (12, '01a202fa-63c3-7d3b-8fe6-223fd6e25abe', 'refuse', 'note', '{"text":"held"}', NULL, NULL, '2026-11-22 11:18:13.69997+00', '2026-11-22 11:18:13.69997+00', 0, 0, NULL);
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (13, '01a202fa-63ed-7b58-bb32-6e674d2b0b50', 'react', 'account.moved', '', '{"asyncmonolith-event":"2 12"}', NULL, '2026-11-22 11:18:13.747467+00', '2026-11-22 11:18:13.747467+00', 0, 0, NULL);
INSERT INTO public.consumer_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors) OVERRIDING SYSTEM VALUE VALUES (14, '01a202fa-640e-79d8-a2cc-6eff055761cf', 'react', 'account.moved', '', '{"asyncmonolith-event":"4 12"}', NULL, '2026-11-22 11:18:13.776591+00', '2026-11-22 11:18:13.776591+00', 0, 0, NULL);
INSERT INTO public.event_head (id, "position") VALUES (1, 3);
INSERT INTO public.event_snapshots (stream, kind, version, state, created_at) VALUES ('account-1', 'balance/1', 2, '{"balance":5}', '2026-11-22 11:18:13.779118+00');
INSERT INTO public.event_streams (stream, category, version, closed, created_at) VALUES ('account-2', 'account', 1, false, '2026-11-22 11:18:13.757895+00');
INSERT INTO public.event_streams (stream, category, version, closed, created_at) VALUES ('account-1', 'account', 3, false, '2026-11-22 11:18:13.742914+00');
INSERT INTO public.events (sequence, "position", event_id, stream, version, category, slot, event_type, schema, data, headers, recorded_at) OVERRIDING SYSTEM VALUE VALUES (1, 1, '01a202fa-63ed-7b2c-ba61-68427ae0cdbb', 'account-1', 1, 'account', 22, 'account.opened', 1, '{"owner":"ann"}', NULL, '2026-11-22 11:18:13.745385+00');
INSERT INTO public.events (sequence, "position", event_id, stream, version, category, slot, event_type, schema, data, headers, recorded_at) OVERRIDING SYSTEM VALUE VALUES (2, 2, '01a202fa-63ed-7b58-bb32-6e674d2b0b50', 'account-1', 2, 'account', 22, 'account.moved', 1, '{"amount":5}', NULL, '2026-11-22 11:18:13.745385+00');
INSERT INTO public.events (sequence, "position", event_id, stream, version, category, slot, event_type, schema, data, headers, recorded_at) OVERRIDING SYSTEM VALUE VALUES (3, 3, '01a202fa-63fa-78ca-9032-a7749dee6a8e', 'account-2', 1, 'account', 3, 'account.opened', 1, '{"owner":"bob"}', NULL, '2026-11-22 11:18:13.760728+00');
INSERT INTO public.events (sequence, "position", event_id, stream, version, category, slot, event_type, schema, data, headers, recorded_at) OVERRIDING SYSTEM VALUE VALUES (4, NULL, '01a202fa-640e-79d8-a2cc-6eff055761cf', 'account-1', 3, 'account', 22, 'account.moved', 1, '{"amount":7}', NULL, '2026-11-22 11:18:13.776102+00');
INSERT INTO public.message_claims (id, owner, solo, claimed_at, leased_until, message_ids) OVERRIDING SYSTEM VALUE VALUES (4, 'vanished', false, '2026-11-22 11:18:13.708577+00', '2026-11-22 11:18:14.708577+00', '{5}');
INSERT INTO public.paused_consumers (consumer_type, paused_at) VALUES ('again', '2026-11-22 11:18:13.718503+00');
INSERT INTO public.poisoned_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors, poisoned_at, reason) VALUES (3, '01a202fa-639b-75d5-8f79-22febf1febd3', 'refuse', 'note', '{"text":"first"}', '{"tenant":"ü"}', NULL, '2026-11-22 11:18:13.659619+00', '2026-11-22 11:18:13.659619+00', 1, 0, '[{"attempt":1,"at":"2026-11-22T11:18:13.680455048Z","error":"no such note"}]', '2026-11-22 11:18:13.683961+00', 'permanent error');
INSERT INTO public.scheduled_messages (id, name, tag, payload_type, payload, headers, cron_expression, cron_timezone, available_after, run_at, paused, last_fired_at, last_error, created_at) OVERRIDING SYSTEM VALUE VALUES (1, 'daily', 't', 'note', '{"text":"daily"}', NULL, '0 30 2 * * *', 'Europe/Berlin', '2026-11-23 01:30:00+00', NULL, false, NULL, NULL, '2026-11-22 11:18:13.729979+00');
INSERT INTO public.scheduled_messages (id, name, tag, payload_type, payload, headers, cron_expression, cron_timezone, available_after, run_at, paused, last_fired_at, last_error, created_at) OVERRIDING SYSTEM VALUE VALUES (2, 'paused', NULL, 'note', '{"text":"paused"}', NULL, '@hourly', 'UTC', '2026-11-22 12:00:00+00', NULL, true, NULL, NULL, '2026-11-22 11:18:13.73618+00');
SELECT pg_catalog.setval('public.consumer_messages_id_seq', 14, true);
SELECT pg_catalog.setval('public.events_sequence_seq', 4, true);
SELECT pg_catalog.setval('public.message_claims_id_seq', 4, true);
SELECT pg_catalog.setval('public.scheduled_messages_id_seq', 2, true);
ALTER TABLE ONLY public.asyncmonolith_migrations
    ADD CONSTRAINT asyncmonolith_migrations_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.consumer_messages
    ADD CONSTRAINT consumer_messages_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.event_head
    ADD CONSTRAINT event_head_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.event_parked
    ADD CONSTRAINT event_parked_pkey PRIMARY KEY (name, version, "position");
ALTER TABLE ONLY public.event_projections
    ADD CONSTRAINT event_projections_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.event_snapshots
    ADD CONSTRAINT event_snapshots_pkey PRIMARY KEY (stream, kind);
ALTER TABLE ONLY public.event_streams
    ADD CONSTRAINT event_streams_pkey PRIMARY KEY (stream);
ALTER TABLE ONLY public.event_subscriptions
    ADD CONSTRAINT event_subscriptions_pkey PRIMARY KEY (name, version, shard);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_stream_version_key UNIQUE (stream, version);
ALTER TABLE ONLY public.message_claims
    ADD CONSTRAINT message_claims_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.paused_consumers
    ADD CONSTRAINT paused_consumers_pkey PRIMARY KEY (consumer_type);
ALTER TABLE ONLY public.poisoned_messages
    ADD CONSTRAINT poisoned_messages_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.scheduled_messages
    ADD CONSTRAINT scheduled_messages_name_key UNIQUE (name);
ALTER TABLE ONLY public.scheduled_messages
    ADD CONSTRAINT scheduled_messages_pkey PRIMARY KEY (id);
CREATE INDEX consumer_messages_crashed ON public.consumer_messages USING btree (consumer_type, payload_type, available_after, id) WHERE (crashes > 0);
CREATE INDEX consumer_messages_due ON public.consumer_messages USING btree (consumer_type, payload_type, available_after, id) WHERE (crashes = 0);
CREATE UNIQUE INDEX consumer_messages_insert_id ON public.consumer_messages USING btree (insert_id, consumer_type) WHERE (insert_id IS NOT NULL);
CREATE INDEX event_parked_stream ON public.event_parked USING btree (name, version, stream);
CREATE UNIQUE INDEX events_position ON public.events USING btree ("position") WHERE ("position" IS NOT NULL);
CREATE INDEX events_unnumbered ON public.events USING btree (sequence) WHERE ("position" IS NULL);
CREATE INDEX poisoned_messages_consumer ON public.poisoned_messages USING btree (consumer_type, poisoned_at);
CREATE INDEX poisoned_messages_newest ON public.poisoned_messages USING btree (poisoned_at, id);
CREATE INDEX scheduled_messages_asked ON public.scheduled_messages USING btree (run_at) WHERE (run_at IS NOT NULL);
CREATE INDEX scheduled_messages_due ON public.scheduled_messages USING btree (available_after) WHERE (NOT paused);
CREATE INDEX scheduled_messages_tag ON public.scheduled_messages USING btree (tag);
