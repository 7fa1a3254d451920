//go:build unix

package chaos_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 9, pgbouncer: in transaction mode every transaction may get another session.
// The store's suite passes all the same, and killed workers lose nothing.

func barPgbouncer(b *bar) {
	program, err := findPgbouncer()
	if err != nil {
		b.notRun("pgbouncer", err)
		return
	}
	port := startPgbouncer(b, program, testdb.PostgresDSN(b))
	by := func(dsn string) string { return rerouted(b, dsn, port) }
	b.suite("pgbouncer in transaction mode", by)
	for _, config := range bothKinds() {
		r := kills(b, by(testdb.PostgresDSN(b)), config, 1500, 4)
		b.figure("pgbouncer in transaction mode: %s", r.surfaced())
	}
}

// findPgbouncer finds pgbouncer, and installs Debian's package if we may.
func findPgbouncer() (string, error) {
	look := func() (string, error) {
		if path, err := exec.LookPath("pgbouncer"); err == nil {
			return path, nil
		}
		return exec.LookPath("/usr/sbin/pgbouncer")
	}
	if path, err := look(); err == nil {
		return path, nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return "", errors.New("pgbouncer: it is not installed, and only root can install Debian's package")
	}
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "pgbouncer"}} {
		cmd := exec.Command(apt, append([]string{"-qq", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
		// In this runlevel Debian's packages do not start their services.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("pgbouncer: apt-get %s: %w: %s", args[0], err, text)
		}
	}
	return look()
}

// startPgbouncer puts a pgbouncer before the server of the DSN, for all of its
// databases, and returns its port.
func startPgbouncer(b *bar, program, dsn string) int {
	b.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	dir, err := os.MkdirTemp("/tmp", "chaos-pgbouncer.")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	settings := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 20
`, config.Host, config.Port, config.User, port)
	if err := errors.Join(os.WriteFile(settings, []byte(text), 0o644), os.Chmod(dir, 0o755)); err != nil {
		b.Fatal(err)
	}
	args := []string{settings}
	if os.Geteuid() == 0 { // which pgbouncer refuses
		args = []string{"-u", "postgres", settings}
	}
	cmd := exec.Command(program, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // at once
		_ = cmd.Wait()
		if b.Failed() {
			b.Logf("pgbouncer: %s", firstLines(strings.TrimSpace(output.String()), 40))
		}
	})
	b.answering(rerouted(b, dsn, port))
	return port
}
