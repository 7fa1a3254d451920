package eventlog_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// failing replaces one statement, the so many-th from when it is armed, by an
// error of the database.
type failing struct {
	left atomic.Int64
	code atomic.Value
}

func (f *failing) arm(code string, statement int) {
	f.code.Store(code)
	f.left.Store(int64(statement))
}

func (f *failing) rewrite(sql string) string {
	if f.left.Load() > 0 && f.left.Add(-1) == 0 {
		return fmt.Sprintf("DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '%s'; END $$", f.code.Load())
	}
	return sql
}

// failureCodes are those of a conflict, a disk that is full, a server that shuts down, and what
// nobody expects.
var failureCodes = []string{"40001", "53100", "57P01", "XX000"}

// TestEachStatementOfARunnerFailsOnce has what is appended be applied once all the
// same.
func TestEachStatementOfARunnerFailsOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	others := newLedger(t, testdb.OpenPostgres(t, dsn))
	var f failing
	l := &ledger{newApp(t, testdb.OpenRewritten(t, dsn, f.rewrite))}
	r := l.runner(balances())
	running(t, "runner", r.Run)
	if err := r.WaitFor(l.ctx, "balances", others.append("account-1", eventlog.AnyVersion, moved{0})); err != nil { // it has started
		t.Fatal(err)
	}
	appended := 1
	for _, code := range failureCodes {
		for statement := 1; statement <= 11; statement++ {
			f.arm(code, statement)
			last := others.append("account-1", eventlog.AnyVersion, moved{1}, moved{2})
			appended += 2
			eventually(t, fmt.Sprintf("applied when statement %d fails with %s", statement, code), func() bool {
				return others.count("SELECT count(*) FROM event_subscriptions WHERE position >= ? AND status = 'running'", appended) == 1
			})
			if n := others.count("SELECT count(*) FROM applied"); n != appended || last.Version != int64(appended) {
				t.Fatalf("applied when statement %d fails with %s: got %d events, want %d", statement, code, n, appended)
			}
		}
	}
	others.mustFold("")
}

// TestEachStatementOfACommandFailsOnce has a command, and a replay, succeed or fail
// as a whole.
func TestEachStatementOfACommandFailsOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	consumers := func() bus.Consumer {
		return bus.Consume("c", func(context.Context, moved) error { return nil })
	}
	others := newApp(t, testdb.OpenPostgres(t, dsn), consumers())
	var f failing
	a := newApp(t, testdb.OpenRewritten(t, dsn, f.rewrite), consumers())
	others.append("account-1", eventlog.NoStream, opened{})
	version := 1
	for _, code := range failureCodes {
		for statement := 1; statement <= 8; statement++ {
			f.arm(code, statement)
			_, appended, err := decider.Execute(a.ctx, a.log, a.db, accounts(3), "1", 1)
			if err == nil {
				version++
			}
			f.arm(code, 0)
			if code == "40001" && err != nil {
				t.Errorf("command whose statement %d meets a conflict: got %v, want it repeated", statement, err)
			}
			if err != nil && !strings.Contains(err.Error(), "on purpose") || err == nil && appended.Version != int64(version) {
				t.Errorf("command whose statement %d fails with %s: got version %d and %v, want %d or the error", statement, code,
					appended.Version, err, version)
			}
			if n := len(others.stream("account-1")); n != version {
				t.Fatalf("events when statement %d fails with %s: got %d, want %d", statement, code, n, version)
			}
			if n := others.count("SELECT count(*) FROM consumer_messages"); n != version-1 {
				t.Fatalf("messages when statement %d fails with %s: got %d, want %d", statement, code, n, version-1)
			}
		}
	}
	others.number()
	others.exec("DELETE FROM consumer_messages")
	for i, code := range failureCodes {
		for statement := 1; statement <= 12; statement++ {
			name := fmt.Sprintf("replay %d/%d", i, statement)
			f.arm(code, statement)
			first, err := a.log.Replay(a.ctx, a.db, eventlog.Replay{Name: name, Consumer: "c"})
			f.arm(code, 0)
			if err != nil && code == "40001" {
				t.Errorf("replay whose statement %d meets a conflict: got %v, want it repeated", statement, err)
			}
			second, err := a.log.Replay(a.ctx, a.db, eventlog.Replay{Name: name, Consumer: "c"})
			if err != nil || first+second != version-1 {
				t.Errorf("replay whose statement %d fails with %s: got %d and %d and %v, want %d in all", statement, code, first, second, err,
					version-1)
			}
			if n := others.count("SELECT count(*) FROM consumer_messages"); n != version-1 {
				t.Fatalf("messages of a replay whose statement %d fails with %s: got %d, want %d", statement, code, n, version-1)
			}
			others.exec("DELETE FROM consumer_messages")
		}
	}
}
