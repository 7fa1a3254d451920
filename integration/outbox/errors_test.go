package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// provoked are statements that a handler may send, by database, each of which fails for
// a reason of its own.
func provoked(db *bun.DB) map[string][]string {
	switch db.Dialect().Name() {
	case dialect.PG:
		return map[string][]string{
			"statement timeout": {"SET LOCAL statement_timeout = 20", "SELECT pg_sleep(10)"},
			"lock timeout":      {"SET LOCAL lock_timeout = 20", "SELECT n FROM locked FOR UPDATE"},
			"read only":         {"SET TRANSACTION READ ONLY", "INSERT INTO locked VALUES (2)"},
		}
	case dialect.MySQL:
		return map[string][]string{
			"statement timeout": {"SET STATEMENT max_statement_time=0.02 FOR SELECT SUM(SQRT(seq)) FROM seq_1_to_1000000000"},
			"lock timeout":      {"SET STATEMENT innodb_lock_wait_timeout=1 FOR SELECT n FROM locked FOR UPDATE"},
		}
	}
	return map[string][]string{
		"statement timeout": {"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"},
	}
}

// TestErrorsOfTheHandlerCountAsAttempts: a statement of the handler's own that takes too long,
// waits for a lock in vain or writes where it must not is a failed attempt, at once.
// Promise: counted
func TestErrorsOfTheHandlerCountAsAttempts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		for what, statements := range provoked(db) {
			for _, group := range []int{1, 20} {
				t.Run(fmt.Sprint(what, " in groups of ", group), func(t *testing.T) {
					var runs atomic.Int64
					name := strings.ReplaceAll(fmt.Sprint(what, group), " ", "-")
					a := testapp.New(t, db, outbox.ConsumeTx(name, func(ctx context.Context, tx bun.Tx, o order) error {
						if o.N != 0 {
							return nil
						}
						runs.Add(1)
						ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
						if db.Dialect().Name() == dialect.SQLite {
							cancel()
							ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
						}
						defer cancel()
						for _, statement := range statements {
							if _, err := tx.NewRaw(statement).Exec(ctx); err != nil {
								return fmt.Errorf("provoked: %w", err)
							}
						}
						return nil
					}, bus.MaxAttempts(2), outbox.GroupCommit(group)))
					a.Exec("CREATE TABLE IF NOT EXISTS locked (n int)")
					a.Exec("INSERT INTO locked VALUES (1)")
					t.Cleanup(func() { a.Exec("DELETE FROM poisoned_messages"); a.Exec("DELETE FROM locked") })
					if db.Dialect().Name() != dialect.SQLite {
						holder := testapp.Must[bun.Tx](t)(db.BeginTx(context.WithoutCancel(t.Context()), nil))
						t.Cleanup(func() { _ = holder.Rollback() })
						testapp.OK(t, testapp.Second(holder.NewRaw("SELECT n FROM locked FOR UPDATE").Exec(t.Context())))
						defer func() { _ = holder.Rollback() }()
					}
					a.ProduceMany(min(group, 5))
					r := a.Start(testapp.Fast())
					testapp.Eventually(t, "all are settled", a.Empty)
					r.MustStop()
					if got := a.Poisoned(); len(got) != 1 || runs.Load() != 2 || r.Stats().Uncounted != 0 {
						t.Errorf("got %d poisoned after %d runs, %d of them uncounted, want 1 after 2, both counted", len(got), runs.Load(),
							r.Stats().Uncounted)
					}
				})
			}
		}
	})
}

// lostConflict is a conflict that is no error of the database, as that of a stream.
type lostConflict struct{}

func (*lostConflict) Error() string  { return "lost" }
func (*lostConflict) Conflict() bool { return true }

// TestLostConflictsAreRepeatedAtOnce, in a new transaction, without counting.
// Promise: conflict
func TestLostConflictsAreRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		for _, group := range []int{1, 20} {
			t.Run(fmt.Sprint("groups of ", group), func(t *testing.T) {
				var runs sync.Map
				a := withEffects(testapp.New(t, db, outbox.ConsumeTx(fmt.Sprint("c", group), func(ctx context.Context, tx bun.Tx, o order) error {
					n, _ := runs.LoadOrStore(o.N, new(atomic.Int64))
					if err := addEffect(ctx, tx, o); err != nil {
						return err
					}
					if n.(*atomic.Int64).Add(1) < 3 && o.N%5 == 0 {
						return fmt.Errorf("append: %w", &lostConflict{})
					}
					return nil
				}, outbox.GroupCommit(group))))
				t.Cleanup(func() { a.Exec("DROP TABLE effects") })
				a.ProduceMany(20)
				r := a.Start(testapp.Fast())
				testapp.Eventually(t, "all are settled", a.Empty)
				r.MustStop()
				if got := a.Count("SELECT count(*) FROM effects WHERE attempt = 1"); got != 20 {
					t.Errorf("effects of a first attempt: got %d, want 20", got)
				}
				if got := r.Stats().Uncounted; got != 0 {
					t.Errorf("runs put back: got %d, want 0: the third try of a run wins", got)
				}
			})
		}
	})
}

// TestADeadlockIsRepeatedAtOnce has two runs lock the same rows in opposite orders.
// Promise: conflict
func TestADeadlockIsRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres, "mariadb": testdb.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var meeting sync.WaitGroup
			meeting.Add(2)
			var runs atomic.Int64
			a := testapp.New(t, open(t), outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
				first := runs.Add(1) <= 2
				for i, n := range []int{o.N, 1 - o.N} {
					if i == 1 && first {
						meeting.Done()
						meeting.Wait()
					}
					if _, err := tx.NewRaw("UPDATE pair SET n = n WHERE n = ?", n).Exec(ctx); err != nil {
						return err
					}
				}
				return nil
			}, bus.MaxAttempts(1), bus.Timeout(30*time.Second)))
			a.Exec("CREATE TABLE pair (n int PRIMARY KEY)")
			a.Exec("INSERT INTO pair VALUES (0), (1)")
			a.ProduceMany(2)
			r := a.Start(testapp.Fast())
			testapp.Eventually(t, "both are settled", a.Empty)
			r.MustStop()
			// Whoever lost may lose again: it can get the first row back before the other wakes up.
			if got := len(a.Poisoned()); got != 0 || runs.Load() < 3 || runs.Load() > 6 || r.Stats().Uncounted != 0 {
				t.Errorf("got %d poisoned, %d runs, %d put back, want 0, 3 or a few more, and 0", got, runs.Load(), r.Stats().Uncounted)
			}
		})
	}
}

// TestUncountedErrorsEndInAnAttempt: the tenth run in a row that was not to count does,
// each waits longer than the one before, and the error is stored and warned of.
// Promise: counted
func TestUncountedErrorsEndInAnAttempt(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var runs testapp.Moments
		logged := new(logLines)
		a := newApp(outbox.ConsumeTx("c", func(context.Context, bun.Tx, order) error { runs.Add(); return &lostConflict{} },
			bus.MaxAttempts(2), bus.Timeout(time.Second)))
		a.ProduceAt(ctx, order{ID: "1"})
		r := a.StartWith(ctx, outbox.ProcessorConfig{Logger: slog.New(logged)})
		testapp.Sooner(t, "an uncounted run is stored", func() bool {
			rows := a.Pending()
			return len(rows) == 1 && strings.Contains(rows[0].Errors, `"uncounted":true`) && rows[0].Attempts == 0
		})
		testapp.Sooner(t, "poisoned", func() bool { return len(a.Poisoned()) == 1 })
		r.MustStop()
		if runs.Len() != 2*10*3 || r.Stats().Uncounted != 2*9 {
			t.Errorf("got %d runs, %d put back, want 60 of 3 tries each, 18", runs.Len(), r.Stats().Uncounted)
		}
		if took := runs.At(29).Sub(runs.At(0)); took < 10*time.Second || took > time.Minute {
			t.Errorf("the first attempt: counted after %s, want about 25 s", took)
		}
		if p := a.Poisoned()[0]; p.Attempts != 2 || strings.Count(p.Errors, `"uncounted":true`) != 2 {
			t.Errorf("poisoned: got %d attempts, errors %s, want 2 and one uncounted run of each", p.Attempts, p.Errors)
		}
		if got := logged.count("message snoozed, attempt not counted"); got != 18 {
			t.Errorf("warnings: got %d, want 18", got)
		}
	})
}

// TestAServerThatLacksRoomIsNoFailedAttempt, while the handler's transaction is aborted.
func TestAServerThatLacksRoomIsNoFailedAttempt(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	a := testapp.New(t, testdb.Postgres(t), outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, _ order) error {
		if runs.Add(1) > 4 {
			return nil
		}
		_, err := tx.NewRaw("DO $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$").Exec(ctx)
		return err
	}, bus.MaxAttempts(1)))
	a.Produce(order{})
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "settled", a.Empty)
	r.MustStop()
	if got := r.Stats().Uncounted; len(a.Poisoned()) != 0 || got != 4 {
		t.Errorf("got %d poisoned, %d runs uncounted, want 0 and 4", len(a.Poisoned()), got)
	}
}

// logLines is a handler that keeps messages and the longest line.
type logLines struct {
	mu      sync.Mutex
	texts   []string
	longest int
}

func (l *logLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logLines) WithGroup(string) slog.Handler            { return l }

func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	size := len(r.Message)
	r.Attrs(func(a slog.Attr) bool { size += len(a.Key) + len(a.Value.String()); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts = append(l.texts, r.Message)
	l.longest = max(l.longest, size)
	return nil
}

func (l *logLines) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.texts {
		if line == text {
			n++
		}
	}
	return n
}

// badError panics when it is a nil pointer.
type badError struct{ inner error }

func (e *badError) Error() string { return e.inner.Error() }
func (e *badError) Unwrap() error { return e.inner }

// TestATypedNilIsAnOrdinaryFailure, of its own message only.
func TestATypedNilIsAnOrdinaryFailure(t *testing.T) {
	t.Parallel()
	handler := func(_ context.Context, _ bun.Tx, o order) error {
		if o.N == 3 {
			return (*badError)(nil)
		}
		return nil
	}
	layer := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			if err := next(ctx, m); err != nil {
				return fmt.Errorf("layer: %w", (*badError)(nil))
			}
			return nil
		}
	}
	for name, chain := range map[string][]bus.Middleware{
		"default": middleware.Default(middleware.Options{}),
		"a layer": middleware.Default(middleware.Options{Middleware: []bus.Middleware{layer}}),
		"outside": middleware.Default(middleware.Options{OuterMiddleware: []bus.Middleware{layer}}),
		"empty":   {},
	} {
		for _, group := range []int{1, 20} {
			t.Run(fmt.Sprint(name, group), func(t *testing.T) {
				t.Parallel()
				a := testapp.New(t, testdb.SQLite(t), outbox.ConsumeTx("c", handler, bus.MaxAttempts(2), outbox.GroupCommit(group)))
				a.ProduceMany(10)
				config := testapp.Fast()
				config.Middleware = chain
				r := a.Start(config)
				testapp.Eventually(t, "the others are done", func() bool { return len(a.Pending()) <= 1 })
				if name == "default" || name == "a layer" {
					testapp.Eventually(t, "poisoned", func() bool { return len(a.Poisoned()) == 1 })
					if p := a.Poisoned()[0]; p.Attempts != 2 || !strings.Contains(p.Errors, "has a method that panics") {
						t.Errorf("poisoned: got %d attempts and errors %s, want 2 that say so", p.Attempts, p.Errors)
					}
				}
				r.MustStop()
			})
		}
	}
}

// TestLongErrorsAreCut, as they are stored and as they are logged.
func TestLongErrorsAreCut(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		long := map[int]string{0: strings.Repeat("<b>&\x01\"", 32<<20/6), 1: strings.Repeat("ä\u2028", 2<<20/5)}
		a := testapp.New(t, db, bus.Consume("c", func(_ context.Context, o order) error { return errors.New(long[o.N]) }, bus.MaxAttempts(12)))
		a.ProduceMany(2)
		logged := new(logLines)
		config := testapp.Fast()
		config.Logger = slog.New(logged)
		r := a.Start(config)
		testapp.Eventually(t, "poisoned", func() bool { return len(a.Poisoned()) == 2 })
		r.MustStop()
		for _, p := range a.Poisoned() {
			if size := len(p.Errors); size > 10*(8<<10+100) || strings.Contains(p.Errors, `\u003c`) {
				t.Errorf("stored errors: got %d bytes, want at most 8 KiB each, as text", size)
			}
		}
		if logged.longest > 12<<10 {
			t.Errorf("longest line: got %d bytes, want little more than 8 KiB", logged.longest)
		}
	})
}
