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
	levels := of(b, []string{"repeatable read", "serializable"}, []string{"SERIALIZABLE"})
	for i, level := range levels {
		d := stricter{b, level}
		if b.tier < long {
			b.storeSuite(level, func(t testing.TB) *bun.DB { return openDSN(t, d.by(b.dsnOf(t))) })
		} else {
			b.wholeSuite(level, testdb.IsolationVariable+"="+level)
		}
		if b.tier == long || i == len(levels)-1 { // there is more to get wrong at the strictest
			d.kills()
		}
		d.produces()
	}
}

// stricter is a way to databases whose isolation is stricter by default.
type stricter struct {
	*bar
	level string
}

// by is the way to a database.
func (d stricter) by(dsn string) string {
	return dsn + of(d.bar, "&default_transaction_isolation="+url.PathEscape(d.level), "?tx_isolation="+url.QueryEscape("'"+d.level+"'"))
}

// kills has workers killed.
func (d stricter) kills() {
	for _, config := range bothKinds() {
		dsn := d.dsn()
		config.DSN = d.by(dsn)
		d.defaults(config.DSN)
		r := kills(d.bar, dsn, config, 1500, 4)
		d.figure("%s by default: %s", d.level, r.surfaced())
	}
}

// produces has producers overlap, not in transactions of the user's own: there a
// conflict is theirs to retry.
func (d stricter) produces() {
	dsn := d.dsn()
	r := newRun(d.bar, dsn, chaos.WorkerConfig{DSN: d.by(dsn), Plain: []string{"one", "two"}})
	until := time.Now().Add(3 * time.Second)
	r.crew(2)
	sent, _ := r.overlap(openDSN(d, d.by(dsn)), 8, 500, false, func(int) bool { return time.Now().Before(until) })
	r.eventually(time.Minute, "everything is settled", r.settled)
	r.stopAll()
	d.figure("%s by default, 8 producers: %d payloads with overlapping insert ids, %s", d.level, sent, r.surfaced())
}

// bothKinds are plain consumers and transactional ones.
func bothKinds() []chaos.WorkerConfig {
	return []chaos.WorkerConfig{{Plain: []string{"one", "two"}}, {Tx: []string{"one", "two"}}}
}

// defaults fails the bar unless that is what a worker's transactions get that name
// no isolation.
func (d stricter) defaults(dsn string) {
	d.Helper()
	var got string
	ask := of(d.bar, "SHOW transaction_isolation", "SELECT @@tx_isolation")
	if err := openDSN(d, dsn).QueryRowContext(d.Context(), ask).Scan(&got); err != nil || got != d.level {
		d.Fatalf("isolation by default: got %q and error %v, want %q", got, err, d.level)
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
		return slices.Contains([]string{"chaos", "cli", "mutants"}, filepath.Base(path))
	})
	output, err := b.command(append([]string{"go", "test", "-count=1", "-timeout=20m", "-skip", "^TestMariaDB|.*/^mariadb"},
		packages...), environment...)
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
