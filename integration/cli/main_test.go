package cli_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

var update = flag.Bool("update", false, "write the golden files") // immutable

var program = filepath.Join(os.TempDir(), fmt.Sprintf("asyncmonolith-%d", os.Getpid())) // immutable

// TestMain builds the command. Without -trimpath, which would compile all that it stands on once more.
func TestMain(m *testing.M) {
	flag.Parse()
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "cmd", "asyncmonolith")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the command: %v\n%s", err, output)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.Remove(program)
	os.Exit(code)
}

// site is a database with the command before it.
type site struct {
	*testing.T
	db  *bun.DB
	dsn string
}

// each runs a test on each database.
func each(t *testing.T, test func(s site)) {
	if *update {
		t.Run("sqlite", func(t *testing.T) { test(onSQLite(t)) })
		return
	}
	eachAsIs(t, test)
}

// eachAsIs runs a test on each database, also where it writes goldens.
func eachAsIs(t *testing.T, test func(s site)) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := testdb.EmptyPostgresDSN(t)
		test(site{t, testdb.OpenPostgres(t, dsn), dsn})
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		dsn := testdb.MariaDBDSN(t)
		test(site{t, testdb.OpenMariaDB(t, dsn), urlOf(t, dsn)})
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(onSQLite(t))
	})
}

func onSQLite(t *testing.T) site {
	path := filepath.Join(t.TempDir(), "test.db")
	return site{t, testdb.OpenSQLite(t, path), "sqlite:" + path}
}

// urlOf is a DSN of MariaDB's driver as the command has it.
func urlOf(t testing.TB, dsn string) string {
	t.Helper()
	config := testapp.Must[*mysql.Config](t)(mysql.ParseDSN(dsn))
	made := url.URL{Scheme: "mariadb", User: url.UserPassword(config.User, config.Passwd), Host: config.Addr, Path: "/" + config.DBName}
	if config.Net == "unix" {
		made.Host, made.RawQuery = "localhost", url.Values{"socket": {config.Addr}}.Encode()
	}
	return made.String()
}

// answer is what the command has done.
type answer struct {
	code     int
	out, err string
}

// command is the program, which is told of the database by its environment.
func (s site) command(ctx context.Context, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = append(os.Environ(), "ASYNCMONOLITH_DSN="+s.dsn)
	var out, err bytes.Buffer
	c.Stdout, c.Stderr = &out, &err
	return c, &out, &err
}

// run runs the command to its end.
func (s site) run(args ...string) answer {
	s.Helper()
	c, out, stderr := s.command(s.Context(), args...)
	if err := c.Run(); err != nil && c.ProcessState == nil {
		s.Fatal(err)
	}
	return answer{c.ProcessState.ExitCode(), out.String(), stderr.String()}
}

// must runs the command, and expects a code.
func (s site) must(code int, args ...string) answer {
	s.Helper()
	a := s.run(args...)
	if a.code != code {
		s.Errorf("%s: got exit code %d, want %d: %s%s", strings.Join(args, " "), a.code, code, a.out, a.err)
	}
	return a
}
