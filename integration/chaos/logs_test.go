//go:build unix

package chaos_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// What the workers of a run log: how much of it, and nothing else.

// onlyLogged fails the bar when a worker wrote anything past its logger: a stack, or
// what the race detector found. What ended a process by itself is known already.
func (r *run) onlyLogged() {
	r.Helper()
	for _, w := range r.former {
		if _, strays := w.LogLines(); len(strays) > 0 && !r.died[w] {
			r.Errorf("%s: got %d lines that are no log lines, want none: %q", w.Name(), len(strays), strays[:min(len(strays), 10)])
		}
	}
}

// keepLogs keeps what the workers of a failed run logged and did.
func (r *run) keepLogs() {
	if !r.Failed() || len(r.former) == 0 {
		return
	}
	err := r.copyLogs()
	if err != nil {
		r.Logf("keep the logs: %v", err)
	}
}

func (r *run) copyLogs() (err error) {
	if r.kept == "" {
		if r.kept, err = os.MkdirTemp("", "chaos-failed."); err != nil {
			return err
		}
		r.figure("logs and ledgers: %s", r.kept)
	}
	dir := filepath.Join(r.kept, filepath.Base(r.dir))
	err = os.CopyFS(dir, os.DirFS(r.dir))
	for _, w := range r.former {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, w.Name()+".log"), []byte(w.Log()), 0o600))
	}
	return err
}

// quiet fails the bar when any worker there ever was said anything twice within a
// second of a span of time, or logged more than a line a second and three. Several
// lines in one second are for several kinds of news: that the database does not
// answer, that consumers are cancelled for it, and that it answers again. None of
// these may wait for the next second's line, and each is said once.
func (r *run) quiet(from, to time.Time) string {
	r.Helper()
	most, inSecond := 0, 0
	seconds := to.Sub(from).Seconds()
	for _, w := range r.former {
		lines, _ := w.LogLines()
		lines = slices.DeleteFunc(lines, func(l chaos.LogLine) bool { return l.Time.Before(from) || l.Time.After(to) })
		most = max(most, len(lines))
		said := make(map[int]map[string]bool)
		for _, line := range lines {
			second := int(line.Time.Sub(from) / time.Second)
			if said[second] == nil {
				said[second] = make(map[string]bool)
			}
			if said[second][line.Msg] {
				r.Errorf("%s: log lines in second %d: got %q twice, want it at most once", w.Name(), second, line.Msg)
			}
			said[second][line.Msg] = true
			inSecond = max(inSecond, len(said[second]))
		}
	}
	if float64(most) > seconds+3 {
		r.Errorf("log lines of a worker: got %d in %.1f s, want at most one a second and three more", most, seconds)
	}
	return fmt.Sprintf("at most %d log lines of a worker in %.0fs, %d within a second", most, seconds, inSecond)
}
