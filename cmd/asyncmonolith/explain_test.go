package main

import (
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
)

const (
	trace  = "0af7651916cd43dd8448eb211c80319c"
	traced = `{"traceparent":"00-` + trace + `-b7ad6b7169203331-01"}`
)

// changed is a database with statements executed.
func changed(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	db, err := connect.Open(t.Context(), connect.Secret(dsn))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.NewRaw(statement, bun.Safe("'"+traced+"'")).Exec(t.Context()); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// TestExplainOfATrace finds messages of every state, however many others there are.
func TestExplainOfATrace(t *testing.T) {
	t.Parallel()
	const (
		poison = `INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, headers, created_at, available_after,
attempts, crashes, poisoned_at, reason) SELECT n, message_id, consumer_type, payload_type, payload, ?, created_at, available_after, 5, 0, created_at,
'attempt 5 of 5 failed' FROM consumer_messages, (WITH RECURSIVE t(n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM t WHERE n < `
		keep = `INSERT INTO consumed_messages (id, message_id, consumer_type, payload_type, headers, any_order, created_at, attempts, version,
run_micros, finished_at, expires_at, outcome) SELECT n, message_id, consumer_type, payload_type, CASE n WHEN 200 THEN ? END, FALSE, created_at, 1, 'v1',
1, created_at + n, created_at + 3600000000, 'done' FROM consumer_messages, (WITH RECURSIVE t(n) AS (SELECT 200 UNION ALL SELECT n + 1 FROM t WHERE n < `
	)
	for name, test := range map[string]struct {
		statement, says string
		more            bool
	}{
		"poisoned":            {poison + `100) SELECT n FROM t)`, "100  mail (order.placed): poisoned", false},
		"many poisoned":       {poison + `110) SELECT n FROM t)`, "110  mail (order.placed): poisoned", true},
		"kept, before others": {keep + `2300) SELECT n FROM t)`, "200  mail (order.placed): done", false},
		"pending":             {`UPDATE consumer_messages SET headers = ?`, "1  mail (order.placed): ", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := stocked(t)
			changed(t, dsn, test.statement)
			got := called(t, dsn, "explain", trace)
			if got.code != exitDone || !strings.Contains(got.out, test.says) || strings.Contains(got.err, "More messages have "+trace) != test.more {
				t.Errorf("got %+v, want %q, and more of them: %t", got, test.says, test.more)
			}
			other := strings.Replace(trace, "0af", "1af", 1)
			if got := called(t, dsn, "explain", other); got.code != exitNotFound || !strings.Contains(got.err, "has "+other) {
				t.Errorf("another trace: got %+v, want exit code %d", got, exitNotFound)
			}
		})
	}
}
