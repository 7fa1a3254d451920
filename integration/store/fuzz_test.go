package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Hostile input on its way through a database: what is written comes back as it
// was, or is refused with an error that can be told from others; and whatever is
// written or refused beside it does not notice. `make fuzz` runs these for longer.

// hostile is text of all kinds.
func hostile() []string {
	return []string{
		"", "{}", "\x00", "a\x00b", "\xff\xfe", "\xed\xa0\x80", "\u2028\u2029", "é", "\ufffd", "\U0001f600",
		"'; DROP TABLE consumer_messages; --",
		"?", "{0}", "?0", "{now}", "{messages}", `\`, `\x00`, `{"a":1,"a":2}`, "\r\n\t\v", strings.Repeat("x",
			300), "$1", "--", "/*", "E'\\'", "\x1f",
	}
}

// stored is a database that fuzzed input goes through.
type stored struct {
	db       *bun.DB
	store    *store.Store
	registry *bus.Registry
	producer *outbox.Producer
}

// each runs a check on the databases. While the fuzzer works, SQLite, which is Go
// and so instrumented with the rest, takes a hundred times as long: then it gets
// one input in sixteen, the same ones every time.
func each(databases []stored, input string, check func(d stored)) {
	fuzzing := flag.Lookup("test.fuzz").Value.String() != ""
	h := fnv.New32a()
	h.Write([]byte(input))
	for _, d := range databases {
		if d.db.Dialect().Name() != dialect.SQLite || !fuzzing || h.Sum32()%16 == 0 {
			check(d)
		}
	}
}

// rawPayload is a payload whose text is whatever it is.
type rawPayload struct{ text string }

func (rawPayload) PayloadType() string { return "raw" }

// rawCodec writes raw payloads as they are.
type rawCodec struct{}

func (rawCodec) Encode(payload any) ([]byte, error) { return []byte(payload.(rawPayload).text), nil }

func (rawCodec) Decode(text []byte, into any) error {
	into.(*rawPayload).text = string(text)
	return nil
}

// fuzzDatabases opens one of each kind. Nobody reads them after a crash.
func fuzzDatabases(f *testing.F) []stored {
	f.Helper()
	var all []stored
	for _, db := range []*bun.DB{
		testdb.OpenPostgres(f, testdb.PostgresDSN(f, "synchronous_commit=off")),
		testdb.OpenSQLiteWith(f, f.TempDir()+"/fuzz.db",
			"_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"),
	} {
		consumer := bus.Consume("c", func(context.Context, rawPayload) error { return nil })
		registry := testapp.Must[*bus.Registry](f)(bus.RegistryConfig{Codec: rawCodec{}}.NewRegistry(consumer))
		producer := testapp.Must[*outbox.Producer](f)(outbox.NewProducer(registry, outbox.ProducerConfig{MaxPayload: 64 << 10}))
		s := testapp.Must[*store.Store](f)(store.For(db.Dialect().Name(), bus.Tables{}))
		testapp.OK(f, s.Schema.Migrate(context.Background(), db))
		all = append(all, stored{db, s, registry, producer})
	}
	return all
}

func (d stored) clear(t *testing.T) {
	t.Helper()
	for _, table := range []string{"consumer_messages", "message_claims", "poisoned_messages", "scheduled_messages"} {
		testapp.OK(t, testapp.Second(d.db.NewRaw("DELETE FROM "+table).Exec(t.Context())))
	}
}

func (d stored) claim(t *testing.T) store.Claim {
	t.Helper()
	c, err := d.store.Claims.Claim(t.Context(), d.db, store.ClaimRequest{
		Owner: "o", Lease: time.Minute, MaxBytes: 1 << 30, Wants: []store.Want{{Consumer: "c", Payload: "raw", Limit: 100}},
	})
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return c
}

// known tells errors that a caller can tell apart.
func known(err error) bool {
	for _, kind := range []error{bus.ErrTooLarge, bus.ErrInvalidText, bus.ErrInvalidOption, schedule.ErrExpression} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func FuzzStoredMessage(f *testing.F) {
	for _, text := range hostile() {
		f.Add(text, text, text, text)
	}
	databases := fuzzDatabases(f)
	f.Fuzz(func(t *testing.T, payload, key, value, insertID string) {
		each(databases, payload+insertID, func(d stored) {
			d.clear(t)
			d.roundTrip(t, payload, key, value, insertID)
		})
	})
}

// roundTrip produces a payload between two others, and claims all three.
func (d stored) roundTrip(t *testing.T, payload, key, value, insertID string) {
	t.Helper()
	good := outbox.Item{Payload: rawPayload{"good"}}
	bad := outbox.Item{Payload: rawPayload{payload}, Options: []outbox.Option{outbox.InsertID(insertID), outbox.Header(key, value)}}
	_, err := d.producer.ProduceMany(t.Context(), d.db, good, bad, good)
	if err != nil {
		if !known(err) {
			t.Fatalf("%s: produce: an error of no known kind: %v", d.db.Dialect().Name(), err)
		}
		if c := d.claim(t); len(c.Messages) != 0 {
			t.Fatalf("%s: refused, but written: %+v", d.db.Dialect().Name(), c.Messages)
		}
		return
	}
	found, neighbours := 0, 0
	for _, m := range d.claim(t).Messages {
		if string(m.Payload) == "good" && m.InsertID == "" && len(m.Headers) == 0 {
			neighbours++
			continue
		}
		found++
		var headers map[string]string
		if err := json.Unmarshal(m.Headers, &headers); err != nil || !maps.Equal(headers, map[string]string{key: value}) {
			t.Fatalf("%s: headers: got %q and error %v, want %q: %q", d.db.Dialect().Name(), m.Headers, err, key, value)
		}
		if !bytes.Equal(m.Payload, []byte(payload)) || m.InsertID != insertID {
			t.Fatalf("%s: got payload %q with insert id %q, want %q with %q", d.db.Dialect().Name(), m.Payload, m.InsertID, payload, insertID)
		}
	}
	if n, err := d.db.NewSelect().Table("message_claims").Count(t.Context()); found != 1 || neighbours != 2 || err != nil || n != 1 {
		t.Fatalf("%s: got %d of the messages and %d neighbours, in %d claims, error %v, want 1 and 2 in 1", d.db.Dialect().Name(), found,
			neighbours, n, err)
	}
}

func FuzzConsumedPayload(f *testing.F) {
	for _, text := range append(hostile(), `{"id":"x","n":7}`, `{"id":1}`, `{"n":1e999}`, `{"id":"\ud800"}`, "[", "null",
		strings.Repeat("[", 20_000)) {
		f.Add(text)
	}
	databases := fuzzDatabases(f)
	f.Fuzz(func(t *testing.T, text string) {
		each(databases, text, func(d stored) {
			d.clear(t)
			d.consumed(t, errorlog.Clean(text, 0))
		})
	})
}

// consumed has a processor run a payload that nobody checked, between others. It
// reaches its consumer as it is, or is poisoned as what it is, in one go; the
// others are consumed in any case.
func (d stored) consumed(t *testing.T, text string) {
	t.Helper()
	var mu sync.Mutex
	got := make(map[order]int)
	registry, err := bus.NewRegistry(bus.Consume("c", func(_ context.Context, o order) error {
		mu.Lock()
		defer mu.Unlock()
		got[o]++
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	rows, want := make([]store.NewMessage, 5), make(map[order]int)
	for i := range rows {
		o := order{ID: "neighbour", N: i}
		rows[i] = store.NewMessage{ConsumerType: "c", PayloadType: o.PayloadType(), Payload: fmt.Sprintf(`{"id":"neighbour","n":%d}`, i)}
		if i == 2 {
			o, rows[i].Payload = order{}, text
			err = registry.Codec().Decode([]byte(text), &o)
		}
		if i != 2 || err == nil {
			want[o]++
		}
	}
	testapp.OK(t, testapp.Second(d.store.Outbox.Insert(t.Context(), d.db, rows)))
	a := &app{T: t, DB: d.db, Registry: registry}
	config := testapp.Fast()
	config.Logger = slog.New(slog.DiscardHandler)
	r := a.Start(config)
	testapp.Eventually(t, "everything is consumed", a.Empty)
	r.MustStop()
	if !maps.Equal(got, want) {
		t.Fatalf("%s: consumed: got %v, want %v", d.db.Dialect().Name(), got, want)
	}
	poisoned := a.Poisoned()
	if undecodable := err != nil; undecodable != (len(poisoned) == 1) || undecodable &&
		(poisoned[0].Payload != text || poisoned[0].Attempts != 1) {
		t.Fatalf("%s: decoding gives %v: got %+v poisoned, want it to be, with its text, after one attempt, if that is an error",
			d.db.Dialect().Name(), err, poisoned)
	}
}

func FuzzStoredOutcome(f *testing.F) {
	for _, text := range append(hostile(), strings.Repeat("é", 5000), strings.Repeat("\x00", 9000)) {
		f.Add(text, text)
	}
	databases := fuzzDatabases(f)
	f.Fuzz(func(t *testing.T, text, reason string) {
		each(databases, text+reason, func(d stored) {
			d.clear(t)
			d.outcomes(t, text, reason)
		})
	})
}

// outcomes settles a batch in which one message fails and one is poisoned with
// texts, and two are not concerned.
func (d stored) outcomes(t *testing.T, text, reason string) {
	t.Helper()
	rows := make([]store.NewMessage, 5)
	for i := range rows {
		rows[i] = store.NewMessage{ConsumerType: "c", PayloadType: "raw", Payload: "{}"}
	}
	testapp.OK(t, testapp.Second(d.store.Outbox.Insert(t.Context(), d.db, rows)))
	c := d.claim(t)
	const maxText = 8 << 10
	list := errorlog.Append("", errorlog.Attempt{Attempt: 1, Error: text})
	results := []store.Result{
		{Outcome: store.Done}, {Outcome: store.Failed, Errors: list, Reason: reason}, {Outcome: store.Poison, Errors: list, Reason: reason},
		{Outcome: store.Failed, Errors: text}, {Outcome: store.Done},
	}
	for i := range results {
		results[i].Claim, results[i].Message = c.ID, c.Messages[i].ID
	}
	settled, err := d.store.Claims.Settle(t.Context(), d.db, "o", time.Minute, results)
	if err != nil || settled.Applied != len(results) {
		t.Fatalf("%s: settle: got %+v and error %v, want all applied", d.db.Dialect().Name(), settled, err)
	}
	failed := d.claim(t).Messages
	if len(failed) != 2 || failed[0].Errors != list || failed[1].Errors != errorlog.Clean(text, 0) {
		t.Fatalf("%s: failed: got %+v, want the lists %q and %q", d.db.Dialect().Name(), failed, list, text)
	}
	poisoned, err := d.store.Poison.List(t.Context(), d.db, store.PoisonFilter{}, 10)
	if err != nil || len(poisoned) != 1 || poisoned[0].Errors != list || poisoned[0].Reason != errorlog.Clean(reason, maxText) {
		t.Fatalf("%s: poisoned: got %+v and error %v, want the list %q and the reason %q", d.db.Dialect().Name(), poisoned, err, list, reason)
	}
	if reason != "" && !strings.ContainsAny(reason, "\x00\ufffd") {
		part := poisoned[0].Reason // every character of it, those with a meaning in LIKE too
		if found, err := d.store.Poison.List(t.Context(), d.db, store.PoisonFilter{Error: part}, 10); err != nil || len(found) != 1 {
			t.Fatalf("%s: search for %q: got %d and error %v, want 1", d.db.Dialect().Name(), part, len(found), err)
		}
	}
}

func FuzzStoredTables(f *testing.F) {
	for _, text := range append(hostile(), "a", "_", "a_1", "select", "user", "order_", "pg_x", "abcdefghijklmnopqrstuvwx") {
		f.Add(text, text)
	}
	databases := fuzzDatabases(f)
	f.Fuzz(func(t *testing.T, schema, prefix string) {
		tables := bus.Tables{Schema: schema, Prefix: prefix}
		// PostgreSQL keeps schemas to itself whose names begin like that.
		if access.CheckTables(tables) != nil || prefix == "" ||
			strings.HasPrefix(schema, "pg_") || schema == "information_schema" || schema == "public" {
			return
		}
		for _, d := range databases {
			if d.db.Dialect().Name() == dialect.SQLite {
				tables.Schema = ""
			}
			d.tables(t, tables)
		}
	})
}

// tables makes a set of tables, twice, uses it and drops it.
func (d stored) tables(t *testing.T, tables bus.Tables) {
	t.Helper()
	s := testapp.Must[*store.Store](t)(store.For(d.db.Dialect().Name(), tables))
	for range 2 {
		if err := s.Schema.Migrate(t.Context(), d.db); err != nil {
			t.Fatalf("migrate %+v: %v", tables, err)
		}
	}
	if _, err := s.Outbox.Insert(t.Context(), d.db,
		[]store.NewMessage{{ConsumerType: "c", PayloadType: "raw", Payload: "{}", InsertID: "i"}}); err != nil {
		t.Fatalf("insert into %+v: %v", tables, err)
	}
	for _, name := range []string{
		"pending_insert_ids", "consumer_messages", "message_claims", "poisoned_messages", "schedule_fires", "scheduled_messages",
		"paused_consumers", "asyncmonolith_migrations", "recent_insert_ids", "message_slots", "message_rates", "message_key_rates",
		"message_stops", "message_gates", "message_lanes", "message_breakers", "inbox_messages", "inbox_types", "message_processes",
		"message_minutes", "message_failures", "message_crashes", "message_operations", "message_groups", "consumed_messages",
		"events", "event_streams", "event_head", "event_subscriptions", "event_projections", "event_parked", "event_snapshots",
	} {
		ident := bun.Ident(tables.Prefix + name)
		if tables.Schema != "" {
			ident = bun.Ident(tables.Schema + "." + tables.Prefix + name)
		}
		if _, err := d.db.NewRaw("DROP TABLE IF EXISTS ?", ident).Exec(t.Context()); err != nil {
			t.Fatalf("the table %s of %+v: %v", name, tables, err)
		}
	}
	if tables.Schema != "" {
		if _, err := d.db.NewRaw("DROP SCHEMA ?", bun.Ident(tables.Schema)).Exec(t.Context()); err != nil {
			t.Fatalf("the schema of %+v: %v", tables, err)
		}
	}
}

func FuzzStoredSchedule(f *testing.F) {
	for _, expression := range []string{"@yearly", "0 30 2 * * *", "@every 1s", "* * * * *", "0 0 0 30 2 *", "@reboot", "61 * * * *",
		"@every 1ns", "0 0 0 L * ?"} {
		f.Add(expression, "UTC", "name", "tag")
		f.Add(expression, "America/New_York", "", "")
	}
	for _, text := range hostile() {
		f.Add(text, text, text, text)
		f.Add("@daily", "UTC", text, text)
	}
	databases := fuzzDatabases(f)
	f.Fuzz(func(t *testing.T, expression, zone, name, tag string) {
		each(databases, expression+zone+name, func(d stored) {
			d.clear(t)
			d.scheduled(t, expression, zone, name, tag)
			d.clear(t)
			d.fired(t, errorlog.Clean(expression, 0), errorlog.Clean(zone, 0))
		})
	})
}

// scheduled writes a schedule and reads it again.
func (d stored) scheduled(t *testing.T, expression, zone, name, tag string) {
	t.Helper()
	s, err := schedule.NewScheduler(d.registry, schedule.SchedulerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Upsert(t.Context(), d.db, rawPayload{"x"}, expression, zone, schedule.Name(name), schedule.Tag(tag))
	if err != nil {
		if !known(err) {
			t.Fatalf("%s: schedule %q in %q: an error of no known kind: %v", d.db.Dialect().Name(), expression, zone, err)
		}
		return
	}
	rows, _, err := s.List(t.Context(), d.db, schedule.Filter{}, admin.Page{})
	if err != nil || len(rows) != 1 || rows[0].Expression != expression || rows[0].Zone != zone || rows[0].Name != name || rows[0].Tag != tag {
		t.Fatalf("%s: got %+v and error %v, want %q in %q, %q, %q", d.db.Dialect().Name(), rows, err, expression, zone, name, tag)
	}
}

// fired has a schedule fire that stands between two that nobody checked, as an
// older release or a hand may have left them.
func (d stored) fired(t *testing.T, expression, zone string) {
	t.Helper()
	due := store.Moment{Time: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)}
	for _, row := range []store.Schedule{
		{PayloadType: "raw", Payload: []byte("bad"), CronExpression: expression, CronTimezone: "UTC", AvailableAfter: due},
		{PayloadType: "raw", Payload: []byte("good"), CronExpression: "@yearly", CronTimezone: "UTC", AvailableAfter: due},
		{PayloadType: "raw", Payload: []byte("bad"), CronExpression: "@yearly", CronTimezone: zone, AvailableAfter: due},
	} {
		testapp.OK(t, testapp.Second(d.store.Schedules.Save(t.Context(), d.db, row)))
	}
	processor, err := schedule.NewProcessor(d.db, d.registry, d.producer, schedule.ProcessorConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- processor.Run(ctx) }()
	testapp.Eventually(t, "the good schedule fires", func() bool {
		n, err := d.db.NewSelect().Table("consumer_messages").Where("payload = 'good'").Count(context.WithoutCancel(ctx))
		return err == nil && n == 1
	})
	stop()
	testapp.OK(t, <-done)
}
