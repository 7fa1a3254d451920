package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

type order struct {
	Card string `json:"card"`
}

func (order) PayloadType() string { return "order.placed" }

const hostile = "\x1b[31m\u202eevil\u009b"

// stocked is a database with message 1, of consumer mail.
func stocked(t *testing.T) string {
	t.Helper()
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	db, err := connect.Open(t.Context(), connect.Secret(dsn))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	registry, err := bus.NewRegistry(bus.Consume("mail", func(context.Context, order) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Migrate(t.Context(), db, registry.Tables()); err != nil {
		t.Fatal(err)
	}
	if _, err := producer.Produce(t.Context(), db, order{Card: "geheim"}, outbox.InsertID(hostile)); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// TestChangesAreAskedFor: each of --yes and --reason is needed.
func TestChangesAreAskedFor(t *testing.T) {
	t.Parallel()
	dsn := stocked(t)
	for _, args := range [][]string{{"consumers", "pause", "mail"}, {"messages", "cancel", "1"}, {"messages", "cancel", "--all"},
		{"messages", "run-now", "1"}} {
		for _, more := range [][]string{nil, {"--reason", "why"}} {
			if got := called(t, dsn, append(args, more...)...); got.code != exitNotConfirmed {
				t.Errorf("%v %v: got %+v, want exit code %d", args, more, got, exitNotConfirmed)
			}
		}
		for _, reason := range []string{"", " "} { // it is told before anybody connects
			if got := called(t, "sqlite:/no/such/file", append(args, "--yes", "--reason="+reason)...); got.code != exitUsage ||
				!strings.Contains(got.err, "--reason is missing") {
				t.Errorf("%v --yes without a reason: got %+v, want exit code %d", args, got, exitUsage)
			}
		}
	}
	if got := called(t, dsn, "operations", "list"); got.out != "No change was made.\n" {
		t.Errorf("got %q, want no changes", got.out)
	}
	if got := called(t, dsn, "messages", "cancel", "1", "--yes", "--reason", "why"); got.code != exitDone ||
		!strings.Contains(got.out, "1 message cancelled.") {
		t.Errorf("confirmed: got %+v", got)
	}
}

// TestContentsAreAskedFor: payloads are shown with --show-payloads only.
func TestContentsAreAskedFor(t *testing.T) {
	t.Parallel()
	dsn := stocked(t)
	for _, format := range []string{"--json=false", "--json"} {
		if got := called(t, dsn, "messages", "get", "1", format); got.code != exitDone || strings.Contains(got.out, "geheim") {
			t.Errorf("%s: got %+v, want no content", format, got)
		}
		if got := called(t, dsn, "messages", "get", "1", "--show-payloads", format); !strings.Contains(got.out, "geheim") {
			t.Errorf("%s: got %+v, want the content", format, got)
		}
	}
}

// TestStoredTextsAreNoCommands to a terminal.
func TestStoredTextsAreNoCommands(t *testing.T) {
	t.Parallel()
	dsn := stocked(t)
	for _, args := range [][]string{{"messages", "list"}, {"messages", "get", "1"}, {"messages", "list", "--json"},
		{"messages", "cancel", "1"}} {
		got := called(t, dsn, args...)
		if strings.ContainsAny(got.out+got.err, "\x1b\u202e\u009b") || !strings.Contains(got.out, `\u001b[31m\u202eevil\u009b`) {
			t.Errorf("%v: got %q, which a terminal would act upon", args, got.out)
		}
	}
}

// TestNamesThatAreMistyped of consumers and schedules come with the nearest one.
func TestNamesThatAreMistyped(t *testing.T) {
	t.Parallel()
	dsn := stocked(t)
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"messages", "list", "--consumer", "mial"}, exitDone, "No pending message matches."}, // two letters of four
		{[]string{"messages", "list", "--consumer", "mai"}, exitUsage, `did you mean "mail"?`},
		{[]string{"messages", "cancel", "--consumer", "maill"}, exitUsage, `did you mean "mail"?`},
		{[]string{"messages", "cancel", "--consumer", "maill", "--yes", "--reason", "r"}, exitUsage, `did you mean "mail"?`},
		{[]string{"messages", "cancel", "--consumer", "charge-card"}, exitNotFound, "nothing matches"},
		{[]string{"requeue", "--consumer", "Mail"}, exitUsage, `did you mean "mail"?`},
		{[]string{"requeue", "--consumer", "mail"}, exitNotFound, "nothing matches"},
		{[]string{"poisoned", "list", "--consumer", "mai"}, exitUsage, `did you mean "mail"?`},
		{[]string{"poisoned", "groups", "--consumer", "mai"}, exitUsage, `did you mean "mail"?`},
		{[]string{"poisoned", "groups", "--consumer", "mail"}, exitDone, "No message is poisoned."},
		{[]string{"consumers", "pause", "mial"}, exitNotFound, `did you mean "mail"?`},
	} {
		if got := called(t, dsn, test.args...); got.code != test.code || !strings.Contains(got.out+got.err, test.says) {
			t.Errorf("%v: got %+v, want exit code %d and %q", test.args, got, test.code, test.says)
		}
	}
}

// TestTextsThatReadZero are texts: a key may be 0, and a payload false.
func TestTextsThatReadZero(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := &output{terminal: terminal{out: &out}}
	err := o.fields("key", "0", "payload", "false", "rate", 0, "parks", false, "note", "")
	if err != nil || out.String() != "key      0\npayload  false\n" {
		t.Errorf("got %q and error %v, want the texts", out.String(), err)
	}
	for want, target := range map[string]ops.Target{
		"key 0":           {Pending: &admin.Filter{OrderingKey: "0"}},
		"insert id 0":     {Pending: &admin.Filter{InsertID: "0"}},
		"error 0":         {Poisoned: &poison.Filter{Error: "0"}},
		"ids among [7 8]": {Poisoned: &poison.Filter{IDs: []int64{7, 8}}},
	} {
		if got := targetText(target); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestFindSaysThatThereIsMore: a list that is cut looks like a whole one.
func TestFindSaysThatThereIsMore(t *testing.T) {
	t.Parallel()
	dsn := stocked(t)
	db, err := connect.Open(t.Context(), connect.Secret(dsn))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.Exec(`UPDATE consumer_messages SET headers = '{"tenant":"acme"}'`); err != nil {
		t.Fatal(err)
	}
	const copied = "message_id, consumer_type, payload_type, payload, headers, created_at, available_after, attempts, crashes"
	if _, err := db.Exec("INSERT INTO consumer_messages (" + copied + ") SELECT " + copied + " FROM consumer_messages"); err != nil {
		t.Fatal(err)
	}
	for limit, more := range map[string]bool{"1": true, "2": false, "50": false} {
		got := called(t, dsn, "messages", "find", "--header", "tenant=acme", "--limit", limit)
		if got.code != exitDone || strings.Contains(got.err, "More messages may match") != more {
			t.Errorf("--limit %s: got %+v, want that there is more: %t", limit, got, more)
		}
	}
}

// TestNoUndoWindow: with --undo-window 0 an operation starts at once.
func TestNoUndoWindow(t *testing.T) {
	t.Parallel()
	dsn := stocked(t)
	db, err := connect.Open(t.Context(), connect.Secret(dsn))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	const columns = "name, version, shard, shards, filter, position, status, next_at, moved_at"
	if _, err := db.Exec("INSERT INTO event_subscriptions (" + columns + ") VALUES ('totals', 1, 0, 1, '', 0, 'running', 0, 0)"); err != nil {
		t.Fatal(err)
	}
	for window, least := range map[string]time.Duration{"0": 0, "1h": time.Hour} {
		for _, args := range [][]string{{"messages", "run-now", "--all"}, {"projections", "rebuild", "totals"}} {
			got := called(t, dsn, append(args, "--undo-window", window, "--yes", "--reason", "why", "--json")...)
			var o ops.Operation
			if err := json.Unmarshal([]byte(got.out), &o); err != nil {
				t.Fatalf("%v: got %+v, %v", args, got, err)
			}
			if waits := o.StartsAt.Sub(o.CreatedAt); waits < least || waits > least+5*time.Second {
				t.Errorf("%v: --undo-window %s: it starts after %s", args, window, waits)
			}
			called(t, dsn, "operations", "stop", fmt.Sprint(o.ID))
		}
	}
}
