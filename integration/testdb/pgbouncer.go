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
// returns a DSN of the same database that leads through it.
func Pgbouncer(t testing.TB, dsn string) string {
	t.Helper()
	port, stop, err := StartPgbouncer(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if log := stop(); t.Failed() {
			t.Logf("pgbouncer: %s", log)
		}
	})
	through := rerouted(t, dsn, port)
	awaitAnswer(t, through)
	return through
}

// StartPgbouncer starts a pgbouncer in transaction mode before the server of the
// DSN, for all of its databases. It returns its port on this machine, at which it
// is about to answer, and how to stop it, which returns what it logged.
func StartPgbouncer(dsn string) (port int, stop func() (log string), err error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		return 0, nil, errors.New("testdb: pgbouncer is not installed: run scripts/need-pgbouncer.sh")
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return 0, nil, fmt.Errorf("testdb: data source name: %w", err)
	}
	if port, err = freePort(); err != nil {
		return 0, nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "pgbouncer.")
	if err != nil {
		return 0, nil, err
	}
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
	args := []string{settings}
	if os.Geteuid() == 0 { // which pgbouncer refuses
		args = []string{"-u", "postgres", settings}
	}
	cmd := exec.Command(program, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err = errors.Join(os.WriteFile(settings, []byte(text), 0o644), os.Chmod(dir, 0o755))
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, nil, errors.Join(fmt.Errorf("testdb: start pgbouncer: %w", err), os.RemoveAll(dir))
	}
	return port, func() string {
		_ = cmd.Process.Signal(syscall.SIGTERM) // at once
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
		return output.String()
	}, nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
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
