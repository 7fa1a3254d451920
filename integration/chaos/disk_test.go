//go:build unix

package chaos_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// Bar 8, disk full: the server's file system has no room for twenty seconds.
// Tables cannot grow, and when the write-ahead log cannot either the server panics.

const diskSize = "160m"

func barDiskFull(b *bar) {
	disk, err := newDisk(b)
	if err != nil {
		b.notRun("diskfull", err)
		return
	}
	// Without recycling every new segment of PostgreSQL's log needs room. MariaDB's has its room from the beginning.
	server := newServerIn(b, disk, of(b, []string{"max_wal_size=32MB", "min_wal_size=32MB", "wal_recycle=off"},
		[]string{"innodb-log-file-size=16M"})...)
	b.exec(openDSN(b, server.DSN()), "CREATE TABLE ballast (text CHAR(32))") // a new one would need files that cannot be made
	f := of(b,
		filling{table: "INSERT INTO ballast SELECT md5(n::text) FROM generate_series(1, 1000000) n", refusal: "53100",
			log: "SELECT pg_switch_wal()"},
		filling{table: "INSERT INTO ballast SELECT MD5(seq) FROM seq_1_to_1000000", refusal: "1114"})
	config, spec := outages()
	r := newRun(b, server.DSN(), config)
	r.crew(3)
	l := r.load(spec)
	pause(3 * time.Second)
	filler := filepath.Join(disk, "filler")
	full := time.Now()
	refused, panicked := r.fillDisk(filler, f)
	said := server.Log()
	logged := r.quiet(full, time.Now())
	testapp.OK(b, os.Remove(filler))
	if !server.Running() {
		start(b, server)
	}
	up := b.answering(r.dsn)
	took := r.healed(up)
	r.finish(l)
	b.refused(refused, f.refusal)
	refusal := func(w *chaos.Worker) bool { return strings.Contains(w.Log(), f.refusal) }
	if f.log == "" && !slices.ContainsFunc(r.former, refusal) { // else the server itself is gone before long
		b.Errorf("disk full: got no worker that was refused with code %s, want some", f.refusal)
	}
	if f.log != "" && (panicked == nil || !strings.Contains(said, "PANIC:") || !strings.Contains(said, "No space left on device")) {
		b.Errorf("disk full: got %v and a server that says %q, want a log that cannot grow and a server that panics of it", panicked,
			said[max(0, len(said)-500):])
	}
	b.within("healed", took, patience)
	said = fmt.Sprint(refused)
	if f.log != "" {
		said += fmt.Sprintf("; then the log: %v", panicked)
	}
	b.figure("disk full for 20s (%s): healed in %.1fs (goal ≤ %s); %s", said, took.Seconds(), patience, logged)
}

// filling is what makes a database grow.
type filling struct {
	table   string // writes a large table
	refusal string // the code of the server's refusal
	log     string // begins another file of its log, of which it panics; none where that has its room already
}

// newDisk mounts a small file system.
func newDisk(b *bar) (string, error) {
	b.Helper()
	if os.Geteuid() != 0 {
		return "", errors.New("disk full: only root can mount a small file system")
	}
	dir := testapp.Must[string](b)(os.MkdirTemp("/tmp", "chaos-disk."))
	b.atEnd(func() { _ = os.Remove(dir) })
	if text, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+diskSize, "tmpfs", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("disk full: mount: %w: %s", err, text)
	}
	b.atEnd(func() {
		if text, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			b.Errorf("umount: %v: %s", err, text)
		}
	})
	return dir, nil
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// fill appends to a file until the disk is full.
func fill(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err = io.Copy(file, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill the disk: %w", err)
	}
	return nil
}

// fillDisk keeps the disk full for twenty seconds: at first tables cannot grow,
// after half of it the log cannot either. It returns what the database says to each.
func (r *run) fillDisk(filler string, f filling) (table, log error) {
	r.Helper()
	begun := time.Now()
	for time.Since(begun) < 20*time.Second {
		if err := fill(filler); err != nil { // again, for the server clears up
			r.Fatal(err)
		}
		if table == nil {
			_, table = r.db.NewRaw(f.table).Exec(r.ctx)
			continue
		}
		if f.log != "" && log == nil && time.Since(begun) > 10*time.Second {
			_, log = r.db.NewRaw(f.log).Exec(r.ctx)
			continue
		}
		pause(100 * time.Millisecond)
	}
	return table, log
}
