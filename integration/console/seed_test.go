package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// world is what a database has: how much, and what texts people or programs have given it.
type world struct {
	name      string
	consumers int
	each      int // pending messages of a consumer
	groups    int // of poisoned messages
	grouped   int // messages in each
	rest      int // schedules, processes, operations and parked events
	hours     int // of minutes
	// text is one that somebody chose, of some kind; the n tells it from others of that kind.
	text func(kind string, n int) string
}

// worlds are the kinds of data that pages are looked at with.
func worlds() []world {
	plain := func(kind string, n int) string { return fmt.Sprintf("%s-%02d", kind, n) }
	return []world{
		{name: "normal", consumers: 6, each: 20, groups: 8, grouped: 6, rest: 6, hours: 1, text: plain},
		{name: "empty", text: plain},
		{name: "hostile", consumers: 2 * len(hostile), each: 3, groups: 2 * len(hostile), grouped: 2, rest: len(hostile), hours: 1,
			text: hostileText},
		{name: "huge", consumers: 60, each: 300, groups: 600, grouped: 10, rest: 400, hours: 6, text: func(kind string, n int) string {
			return fmt.Sprintf("%s-%d-%s", kind, n, strings.Repeat("long", 40))
		}},
	}
}

func worldOf(t testing.TB, name string) world {
	t.Helper()
	for _, w := range worlds() {
		if w.name == name {
			return w
		}
	}
	t.Fatalf("there is no world %q", name)
	return world{}
}

// hostile are texts with which somebody would have a page do what it should not.
var hostile = []string{ // immutable
	`<script>pwned=1</script>`,
	`"><img src=x onerror=pwned=1>`,
	`'-pwned=1-'`,
	`" autofocus onfocus="pwned=1`,
	`' onmouseover='pwned=1`,
	`</title></style></textarea></script><script>pwned=1</script>`,
	`javascript:pwned=1`,
	`{{.}}${pwned=1}`,
	`<svg/onload=pwned=1>`,
	`<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>`,
	`<base href="//evil.example/"><meta http-equiv=refresh content="0;url=//evil.example/">`,
	`<form action="//evil.example/"><button>click</button>`,
	`../../change/discard?all=1#`,
	"\u202egnp.exe \u200b\u2066",
	`%00%0d%0aSet-Cookie:%20a=b`,
	`data:text/html,<script>pwned=1</script>`,
	`--><!--`,
	`&lt;script&gt;pwned=1&lt;/script&gt;`,
}

func hostileText(kind string, n int) string {
	return fmt.Sprintf("%s %d", hostile[n%len(hostile)], n) + kind
}

// seeder writes a world into a database whose tables are there.
type seeder struct {
	world
	t   testing.TB
	db  *bun.DB
	ctx context.Context
	now time.Time // of all rows
}

// seed writes a world.
func seed(t testing.TB, db *bun.DB, w world) {
	t.Helper()
	s := seeder{w, t, db, context.WithoutCancel(t.Context()), time.Now()}
	if w.consumers == 0 {
		return
	}
	s.pending()
	s.poisoned()
	s.consumed()
	s.failures()
	s.minutes()
	s.processes()
	s.schedules()
	s.operations()
	s.projections()
}

func (s seeder) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.db.NewRaw(statement, args...).Exec(s.ctx); err != nil {
		s.t.Fatalf("seed: %s: %v", statement[:min(len(statement), 200)], err)
	}
}

// insert inserts n rows.
func (s seeder) insert(table, columns string, n int, row func(i int) []any) {
	s.t.Helper()
	const most = 200
	values := "(?" + strings.Repeat(", ?", strings.Count(columns, ",")) + ")"
	for from := 0; from < n; from += most {
		var args []any
		var all []string
		for i := from; i < min(n, from+most); i++ {
			all, args = append(all, values), append(args, row(i)...)
		}
		s.exec("INSERT INTO "+table+" ("+columns+") VALUES "+strings.Join(all, ", "), args...)
	}
}

// ago is an instant on the database's clock.
func (s seeder) ago(d time.Duration) bun.Safe { return bun.Safe(testapp.In(s.db, -d)) }

func (s seeder) json(value any) string {
	s.t.Helper()
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // as programs in other languages write it
	if err := e.Encode(value); err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(text.String())
}

func (s seeder) consumer(n int) string { return s.text("consumer", n%s.consumers) }

// payload is one in which the secret stands, so that tests see who is shown it.
func (s seeder) payload(n int) string {
	p := map[string]any{"order": n, "note": s.text("payload", n), "secret": secret, "lines": []int{1, 2, 3}}
	if n == 7 && s.consumers > 20 { // one that is longer than what pages show
		p["long"] = strings.Repeat("x", 200<<10)
	}
	return s.json(p)
}

// secret stands in each payload, header and error of a seed.
const secret = "sesame-4711"

// traceOf is the id of the trace of a message.
func traceOf(n int) string { return fmt.Sprintf("%032x", n+1) }

func (s seeder) headers(n int) string {
	return s.json(map[string]string{"traceparent": "00-" + traceOf(n) + "-00000000000000ab-01", "tenant": s.text("header", n),
		"token": secret, s.text("name", n): "v"})
}

func (s seeder) errors(n, attempts int) string {
	var all []map[string]any
	for i := range attempts {
		all = append(all, map[string]any{"attempt": i + 1, "at": time.Now().Add(-time.Duration(attempts-i) * time.Minute).UTC(),
			"error": s.text("error", n) + " with " + secret})
	}
	return s.json(all)
}

// messageID is that of the nth message. Three in a row are of one payload.
func (s seeder) messageID(n int) string {
	id := uuid.UUID{6: 0x70, 8: 0x80}
	ms := s.now.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	id[14], id[15] = byte(n/3>>8), byte(n/3)
	return id.String()
}

func (s seeder) pending() {
	s.insert("consumer_messages",
		"message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors",
		s.consumers*s.each, func(i int) []any {
			due, attempts, crashes := time.Duration(i)*time.Second, 0, 0
			var insertID, errs any
			switch i % 10 {
			case 1: // later
				due = -time.Hour
			case 2:
				insertID = s.text("insert", i)
			case 3: // retried
				attempts, due, errs = 2, -5*time.Minute, s.errors(i, 2)
			case 4:
				if i < s.rest*10 {
					crashes = 1
				}
			}
			return []any{s.messageID(i), s.consumer(i), s.text("payload-type", i%s.consumers), s.payload(i), s.headers(i), insertID,
				s.ago(time.Hour + time.Duration(i)*time.Second), s.ago(due), attempts, crashes, errs}
		})
	if s.db.Dialect().Name() == dialect.MySQL { // has a table of its own for those
		s.exec("INSERT INTO pending_insert_ids (insert_id, consumer_type, id) SELECT insert_id, consumer_type, id FROM consumer_messages WHERE insert_id IS NOT NULL")
	}
	s.insert("paused_consumers", "consumer_type, paused_at, paused_by, note", 1+s.consumers/10, func(i int) []any {
		return []any{s.consumer(i + 1), s.ago(time.Hour), s.text("person", i), s.text("note", i)}
	})
	s.insert("message_breakers", "name, half_since, failed, opened, opened_at, open_until", 1, func(int) []any {
		return []any{s.consumer(2), s.ago(time.Minute), 100, 1, s.ago(5 * time.Minute), s.ago(-time.Hour)}
	})
}

func fingerprint(n int) string { return fmt.Sprintf("1%016x", n+1) }

func (s seeder) poisoned() {
	first := 1_000_000
	s.insert("poisoned_messages",
		"id, message_id, consumer_type, payload_type, payload, headers, created_at, available_after, attempts, crashes, errors, poisoned_at, reason, fingerprint", s.groups*s.grouped, func(i int) []any {
			group := i % s.groups
			var kind any = fingerprint(group)
			if group == 0 {
				kind = nil
			}
			return []any{first + i, s.messageID(i), s.consumer(group), s.text("payload-type", group%s.consumers), s.payload(i), s.headers(i),
				s.ago(2 * time.Hour), s.ago(2 * time.Hour), 5, 0, s.errors(group, 5),
				s.ago(time.Duration(s.groups*s.grouped-i) * time.Second), "attempt 5 of 5 failed: " + s.text("error", group), kind}
		})
}

// consumed writes messages that are kept, and of two of three the payloads.
func (s seeder) consumed() {
	const first = 2_000_000
	s.insert("consumed_messages", "id, message_id, consumer_type, payload_type, payload, headers, order_key, any_order, created_at, attempts, "+
		"outcome, reason, version, started_at, run_micros, finished_at, expires_at", s.each*2, func(i int) []any {
		outcome := []string{"done", "done", "discarded", "done", "expired"}[i%5]
		var payload, reason, key any
		if i%3 > 0 {
			payload = s.payload(i)
		}
		if i%5 == 2 {
			reason, key = s.text("error", i)+" with "+secret, cut(s.text("key", i), 190)
		}
		finished := time.Duration(i) * time.Minute
		return []any{first + i, s.messageID(i), s.consumer(i), s.text("payload-type", i%s.consumers), payload, s.headers(i), key, false,
			s.ago(finished + time.Hour), 1 + i%3, outcome, reason, cut(s.text("v1.8", i%2), 250), s.ago(finished + time.Second), 840_000,
			s.ago(finished), s.ago(finished - 7*24*time.Hour)}
	})
}

func (s seeder) failures() {
	s.insert("message_failures", "consumer_type, fingerprint, error_type, sample, runs, first_at, last_at, first_version, row_id",
		s.groups, func(i int) []any {
			return []any{s.consumer(i), fingerprint(i), cut(s.text("error-type", i), 250), s.text("error", i) + " with " + secret,
				10 * (i + 1), s.ago(time.Duration(i+1) * time.Hour), s.ago(time.Duration(i) * time.Minute), cut(s.text("v1.8", 0), 250), 1}
		})
}

// cut makes a text as long as a column takes.
func cut(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// minute is the beginning of one, as the database stores it.
func (s seeder) minute(ago int) any {
	at := s.now.Truncate(time.Minute).Add(-time.Duration(ago) * time.Minute)
	if s.db.Dialect().Name() == dialect.PG {
		return at
	}
	return at.UnixMicro()
}

func (s seeder) minutes() {
	minutes := s.hours * 60
	s.insert("message_minutes", "consumer_type, minute, done, retried, poisoned, run_3, run_6, run_9, lag_2, lag_9",
		minutes*min(s.consumers, 12), func(i int) []any {
			of, ago := i/minutes, i%minutes
			return []any{s.consumer(of), s.minute(ago), 100 + (ago*7+of)%50, ago % 5, ago % 3, 60, 30, 10, 90, 10}
		})
}

func (s seeder) processes() {
	type takes struct {
		Name         string   `json:"name"`
		PayloadTypes []string `json:"payload_types"`
		Timeout      int64    `json:"timeout"`
		MaxAttempts  int      `json:"max_attempts"`
	}
	var consumers []takes
	for i := range s.consumers - 1 { // nobody takes the last one
		consumers = append(consumers, takes{s.consumer(i), []string{s.text("payload-type", i)}, int64(10 * time.Second), 5})
	}
	manifest := s.json(map[string]any{"consumers": consumers, "connections": 11})
	s.insert("message_processes", "id, kind, host, pid, program, version, started_at, seen_at, stopped_at, manifest, state", s.rest,
		func(i int) []any {
			seen, every := 0*time.Second, 20*time.Minute
			var stopped any
			switch i % 3 {
			case 1:
				seen, every = 10*time.Minute, 15*time.Second // vanished
			case 2:
				seen, stopped = time.Hour, s.ago(time.Hour)
			}
			return []any{cut(s.text("process", i), 250), "processor", cut(s.text("host", i), 250), 100 + i, cut(s.text("program", i), 250),
				cut(s.text("v1.8", i%2), 250), s.ago(3 * time.Hour), s.ago(seen), stopped, manifest,
				s.json(map[string]any{"every": every, "running": 2, "queued": 1, "limit": 8, "stuck": []string{s.consumer(i)},
					"open_circuits": []string{s.consumer(i + 1)}})}
		})
	s.exec("INSERT INTO message_crashes (row_id, consumer_type, owner, solo, crashed_at) SELECT id, consumer_type, ?, ?, ? FROM consumer_messages WHERE crashes > 0", cut(s.text("process", 1), 250), false, s.ago(5*time.Minute))
	ids := "[1,2]"
	if s.db.Dialect().Name() == dialect.PG {
		ids = "{1,2}"
	}
	s.exec("INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids) VALUES (?, ?, ?, ?, ?)",
		cut(s.text("process", 0), 250), false, s.ago(time.Second), s.ago(-time.Hour), ids)
}

func (s seeder) schedules() {
	expressions := []string{"*/5 * * * *", "0 3 * * *", "30 2 * * *", "not an expression"}
	s.insert("scheduled_messages",
		"name, tag, payload_type, payload, headers, cron_expression, cron_timezone, available_after, paused, last_error, created_at", s.rest,
		func(i int) []any {
			var failed any
			if i%4 == 3 {
				failed = s.text("error", i) + " with " + secret
			}
			expression := expressions[i%4]
			if i%4 == 3 && s.name == "hostile" {
				expression = s.text("cron", i)
			}
			return []any{s.text("schedule", i), s.text("tag", i), s.text("payload-type", i%s.consumers), s.payload(i), s.headers(i),
				expression, "Europe/Vienna", s.ago(-time.Hour), i%4 == 1, failed, s.ago(24 * time.Hour)}
		})
	fires := s.json([]map[string]any{{"due": time.Now().Add(-time.Hour).UTC(), "fired_at": time.Now().Add(-time.Hour).UTC(),
		"messages": 2}, {"due": time.Now().Add(-2 * time.Hour).UTC(), "fired_at": time.Now().Add(-2 * time.Hour).UTC(),
		"error": s.text("error", 3) + " with " + secret}})
	s.exec("INSERT INTO schedule_fires (schedule_id, recent) SELECT id, ? FROM scheduled_messages", fires)
}

func (s seeder) operations() {
	states := []string{"planned", "paused", "undone", "done", "stopped"} // none that a runner would go on with
	s.insert("message_operations",
		"kind, actor, reason, target, preview, state, rate, canary, canaries, after_id, up_to_id, changed, left_alone, note, created_at, starts_at, finished_at", s.rest, func(i int) []any {
			state := states[i%len(states)]
			var starts, finished any = s.ago(time.Hour), s.ago(50 * time.Minute)
			if state == "planned" {
				starts = nil
			}
			if state == "planned" || state == "paused" {
				finished = nil
			}
			target := s.json(map[string]any{"poisoned": map[string]any{"Consumer": s.consumer(i), "Fingerprint": fingerprint(i)}})
			preview := s.json(map[string]any{"up_to": 2_000_000, "messages": 6, "poisoned": map[string]any{"messages": 6,
				"kinds": []map[string]any{{"consumer": s.consumer(i), "payload_type": s.text("payload-type", i), "messages": 6,
					"oldest": time.Now().UTC(), "newest": time.Now().UTC()}}}})
			return []any{"requeue", s.text("person", i), s.text("reason", i), target, preview, state, 100, 10, "[]", 0, 2_000_000, 3, 1,
				s.text("note", i), s.ago(70 * time.Minute), starts, finished}
		})
}

// projections writes how far some have come, where there is an event log.
func (s seeder) projections() {
	if s.db.Dialect().Name() == dialect.MySQL {
		return
	}
	const columns = "event_id, stream, version, category, slot, event_type, schema, data, headers, recorded_at"
	name := "sequence, " + columns
	if s.db.Dialect().Name() == dialect.PG {
		name = "position, " + columns
		s.exec("UPDATE event_head SET position = 50")
	}
	s.insert("events", name, 50, func(i int) []any {
		return []any{i + 1, s.messageID(i), s.text("stream", i), 1, "stream", 0, s.text("payload-type", i%s.consumers), 1,
			`{"secret": "` + secret + `"}`, nil, s.ago(time.Hour)}
	})
	s.insert("event_subscriptions", "name, version, shard, shards, filter, position, status, attempts, next_at, last_error, moved_at",
		min(s.rest, 60), func(i int) []any {
			status, attempts := []string{"running", "halted", "retired"}[i%3], 0
			var failed any
			if status == "halted" {
				attempts, failed = 5, s.text("error", i)+" with "+secret
			}
			return []any{cut(s.text("projection", i), 190), 1, 0, 1, "{}", 20 + i%30, status, attempts, s.ago(0), failed, s.ago(time.Minute)}
		})
	s.insert("event_subscriptions", "name, version, shard, shards, filter, position, status, attempts, next_at, moved_at", 1,
		func(int) []any { // that is not the one to read yet
			return []any{cut(s.text("projection", 0), 190), 2, 0, 1, "{}", 10, "running", 0, s.ago(0), s.ago(time.Minute)}
		})
	s.insert("event_parked", "name, version, position, stream, reason, parked_at", s.rest, func(i int) []any {
		return []any{cut(s.text("projection", i%3), 190), 1, 100 + i, s.text("stream", i), s.text("error", i) + " with " + secret,
			s.ago(time.Minute)}
	})
}
