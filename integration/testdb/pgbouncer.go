package testdb

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Pgbouncer puts a pgbouncer in transaction mode before the server of the DSN, and
// returns a DSN of the same database that leads through it. A test is skipped
// where pgbouncer is not installed.
func Pgbouncer(t testing.TB, dsn string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		t.Skip("pgbouncer is not installed")
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("data source name: %v", err)
	}
	port := freePort(t)
	dir, err := os.MkdirTemp("/tmp", "pgbouncer.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	settings := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%d user=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n",
		config.Host, config.Port, config.User, port)
	if err := errors.Join(os.WriteFile(settings, []byte(text), 0o644), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	args := []string{settings}
	if os.Geteuid() == 0 { // which pgbouncer refuses
		args = []string{"-u", "postgres", settings}
	}
	cmd := exec.Command(program, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("pgbouncer: %s", &output)
		}
	})
	through := rerouted(t, dsn, port)
	awaitAnswer(t, through)
	return through
}

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// rerouted is the DSN with another address.
func rerouted(t testing.TB, dsn string, port int) string {
	t.Helper()
	parsed, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("data source name: %v", err)
	}
	query := parsed.Query()
	query.Set("host", "127.0.0.1")
	query.Set("port", strconv.Itoa(port))
	parsed.Host, parsed.RawQuery = "", query.Encode()
	return parsed.String()
}

func awaitAnswer(t testing.TB, dsn string) {
	t.Helper()
	conns, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conns.Close()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for err = conns.PingContext(t.Context()); err != nil; err = conns.PingContext(t.Context()) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("pgbouncer does not answer: %v", err)
		}
	}
}
