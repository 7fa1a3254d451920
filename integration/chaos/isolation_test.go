//go:build unix

package chaos_test

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/storetest"
)

// Bar 9, isolation: with a stricter isolation level as the database's default the
// store's suite passes (in the long tier all tests of integration do), workers are
// killed and nothing is lost, and no statement of the library's own surfaces an error.

func barIsolation(b *bar) {
	for _, level := range []string{"repeatable read", "serializable"} {
		d := stricter{
			level: level,
			dsn:   func(t testing.TB) string { return testdb.PostgresDSN(t) },
			by:    func(dsn string) string { return dsn + "&default_transaction_isolation=" + url.PathEscape(level) },
			ask:   "SHOW transaction_isolation",
		}
		if b.tier < long {
			b.storeSuite(level, d.open)
		} else {
			b.wholeSuite(level, testdb.IsolationVariable+"="+level)
		}
		kinds := bothKinds()
		if b.tier < long && level != "serializable" {
			kinds = nil // there is more to get wrong at the strictest
		}
		d.kills(b, kinds)
		d.produces(b)
	}
}

// stricter is a way to databases whose isolation is stricter by default.
type stricter struct {
	level string
	dsn   func(testing.TB) string // of a new database
	by    func(dsn string) string // the way to it
	ask   string                  // what level a transaction gets
}

func (d stricter) open(t testing.TB) *bun.DB { return openDSN(t, d.by(d.dsn(t))) }

// kills has workers killed.
func (d stricter) kills(b *bar, kinds []chaos.WorkerConfig) {
	for _, config := range kinds {
		dsn := d.dsn(b)
		config.DSN = d.by(dsn)
		b.defaults(config.DSN, d.ask, d.level)
		r := kills(b, dsn, config, 1500, 4)
		b.figure("%s by default: %s", d.level, r.surfaced())
	}
}

// produces has producers overlap, not in transactions of the user's own: there a
// conflict is theirs to retry.
func (d stricter) produces(b *bar) {
	dsn := d.dsn(b)
	r := newRun(b, dsn, chaos.WorkerConfig{DSN: d.by(dsn), Plain: []string{"one", "two"}})
	until := time.Now().Add(3 * time.Second)
	for range 2 {
		r.start(2)
	}
	sent, _ := r.overlap(openDSN(b, d.by(dsn)), 8, 500, false, func(int) bool { return time.Now().Before(until) })
	r.eventually(time.Minute, "everything is settled", r.settled)
	r.stopAll()
	b.figure("%s by default, 8 producers: %d payloads with overlapping insert ids, %s", d.level, sent, r.surfaced())
}

// bothKinds are plain consumers and transactional ones.
func bothKinds() []chaos.WorkerConfig {
	return []chaos.WorkerConfig{{Plain: []string{"one", "two"}}, {Tx: []string{"one", "two"}}}
}

// defaults fails the bar unless that is what a worker's transactions get that name
// no isolation.
func (b *bar) defaults(dsn, ask, level string) {
	b.Helper()
	var got string
	if err := openDSN(b, dsn).QueryRowContext(b.Context(), ask).Scan(&got); err != nil || got != level {
		b.Fatalf("isolation by default: got %q and error %v, want %q", got, err, level)
	}
}

// wholeSuite runs all tests of the integration packages that are about PostgreSQL,
// the store's conformance suite among them, in an environment of their own. The bars
// themselves, and what has no database of ours, are left out.
func (b *bar) wholeSuite(name string, environment ...string) {
	b.Helper()
	begun := time.Now()
	list, err := exec.Command("go", "list", "../...").Output()
	if err != nil {
		b.Fatalf("go list: %v", err)
	}
	packages := slices.DeleteFunc(strings.Fields(string(list)), func(path string) bool {
		return slices.Contains([]string{"chaos", "mutants"}, filepath.Base(path))
	})
	output, err := b.command(append([]string{"go", "test", "-count=1", "-timeout=20m", "-skip", "^TestMariaDB|.*/^mariadb"}, packages...), environment...)
	if err != nil {
		b.Errorf("%s: go test: %v\n%s", name, err, output)
		return
	}
	b.figure("%s: all tests of %d packages of integration passed in %.0fs", name, len(packages), time.Since(begun).Seconds())
}

// command runs a program, which ends with the bar, and all that it has started.
func (b *bar) command(args []string, environment ...string) (output string, err error) {
	b.Helper()
	var text strings.Builder
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = &text, &text
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	b.atEnd(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // gone already, as a rule
	err = cmd.Wait()
	return text.String(), err
}

// storeSuite runs the store's conformance suite on databases that are reached in
// some special way.
func (b *bar) storeSuite(name string, open func(testing.TB) *bun.DB) {
	b.Helper()
	begun := time.Now()
	if b.Run("store, "+name, func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) *bun.DB { return open(t) })
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
