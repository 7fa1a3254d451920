//go:build unix

package chaos_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/storetest"
)

// Bar 9, isolation: with a stricter isolation level as the database's default the
// store's suite passes, workers are killed and nothing is lost, and no statement of
// the library's own surfaces an error.

func barIsolation(b *bar) {
	for _, level := range []string{"repeatable read", "serializable"} {
		by := func(dsn string) string { return dsn + "&default_transaction_isolation=" + url.PathEscape(level) }
		b.suite(level, by)
		for _, config := range bothKinds() {
			dsn := testdb.PostgresDSN(b)
			config.DSN = by(dsn)
			r := kills(b, dsn, config, 1500, 4)
			b.figure("%s by default: %s", level, r.surfaced())
		}
		dsn := testdb.PostgresDSN(b)
		r := newRun(b, dsn, chaos.WorkerConfig{DSN: by(dsn), Plain: []string{"one", "two"}})
		until := time.Now().Add(3 * time.Second)
		for range 2 {
			r.start(2)
		}
		// Not in transactions of the user's own: there a conflict is theirs to retry.
		sent, _ := r.overlap(testdb.OpenPostgres(b, by(dsn)), 8, 500, false, func(int) bool { return time.Now().Before(until) })
		r.eventually(time.Minute, "everything is settled", r.settled)
		r.stopAll()
		b.figure("%s by default, 8 producers: %d payloads with overlapping insert ids, %s", level, sent, r.surfaced())
	}
}

// bothKinds are plain consumers and transactional ones.
func bothKinds() []chaos.WorkerConfig {
	return []chaos.WorkerConfig{{Plain: []string{"one", "two"}}, {Tx: []string{"one", "two"}}}
}

// suite runs the store's conformance suite on databases that are reached in some
// special way.
func (b *bar) suite(name string, by func(dsn string) string) {
	b.Helper()
	begun := time.Now()
	if b.Run("store, "+name, func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) *bun.DB { return testdb.OpenPostgres(t, by(testdb.PostgresDSN(t))) })
	}) {
		b.figure("%s: the store's suite passed in %.1fs", name, time.Since(begun).Seconds())
	}
}

// surfaced fails the bar when any worker of the run logged an error or a consumer
// failed.
func (r *run) surfaced() string {
	r.Helper()
	lines := 0
	for _, w := range r.former {
		for line := range strings.Lines(w.Log()) {
			if strings.Contains(line, `"level":"ERROR"`) {
				if lines++; lines <= 3 {
					r.Errorf("%s: surfaced: %s", w.Name(), line)
				}
			}
		}
	}
	if failed := r.ledger().Count(chaos.Failed); len(failed) > 0 {
		r.Errorf("consumers that failed: got %d, want none", len(failed))
	}
	return fmt.Sprintf("errors surfaced by statements of the library's own %d", lines)
}
