//go:build unix

package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

const serverPort = 5432 // of the socket's name only: its directory is the server's own

func postgres(bin string) program {
	return program{
		initialise: func(dir string) (string, []string) {
			return filepath.Join(bin, "initdb"), []string{"--pgdata=" + filepath.Join(dir, "data"), "--username=postgres",
				"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"}
		},
		serve: func(dir string, settings []string) (string, []string) {
			args := []string{"-D", filepath.Join(dir, "data"), "-k", dir, "-c", "listen_addresses=", "-c", "port=" + strconv.Itoa(serverPort)}
			for _, setting := range settings {
				args = append(args, "-c", setting)
			}
			return filepath.Join(bin, "postgres"), args
		},
		source: func(dir string) Source {
			return Source(fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%d&sslmode=disable&default_query_exec_mode=exec", dir, serverPort))
		},
		stop: syscall.SIGQUIT, users: []string{"postgres", "nobody"},
		follow: func(primary string) string {
			return fmt.Sprintf("primary_conninfo=host=%s port=%d user=postgres", primary, serverPort)
		},
		promote: func(dir string) (string, []string) {
			return filepath.Join(bin, "pg_ctl"), []string{"promote", "--pgdata=" + filepath.Join(dir, "data"), "--silent"}
		},
	}
}

// serverBinaries finds the newest installed PostgreSQL.
func serverBinaries() (string, error) {
	var candidates []string
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			candidates = append(candidates, filepath.Dir(path))
		}
	}
	if text, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(text)))
	}
	if installed, err := filepath.Glob("/usr/lib/postgresql/*/bin"); err == nil {
		slices.Sort(installed)
		slices.Reverse(installed)
		candidates = append(candidates, installed...)
	}
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New(
		"chaos: server: the binaries of PostgreSQL (initdb, postgres) were not found: install them, or put their directory on PATH",
	)
}

// mariadb finds the installed MariaDB; some distributions keep its server out of PATH.
func mariadb() (program, error) {
	find := func(name string) (string, error) {
		path, err := exec.LookPath(name)
		if err != nil {
			path, err = exec.LookPath("/usr/sbin/" + name)
		}
		return path, err
	}
	server, errServer := find("mariadbd")
	install, errInstall := find("mariadb-install-db")
	if err := errors.Join(errServer, errInstall); err != nil {
		return program{}, fmt.Errorf(
			"chaos: server: the programs of MariaDB (mariadbd, mariadb-install-db) were not found: install them, or put their directories on "+
				"PATH: %w",
			err,
		)
	}
	// A directory for temporary tables of its own: a server that starts removes all it
	// finds in there.
	return program{
		initialise: func(dir string) (string, []string) {
			return install, []string{
				"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--tmpdir=" + dir, "--auth-root-authentication-method=normal",
			}
		},
		serve: func(dir string, settings []string) (string, []string) {
			args := []string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--tmpdir=" + dir, "--socket=" + filepath.Join(dir, "s"),
				"--pid-file=" + filepath.Join(dir, "pid"), "--skip-networking"}
			for _, setting := range settings {
				args = append(args, "--"+setting)
			}
			return server, args
		},
		source: func(dir string) Source { return Source("root@unix(" + filepath.Join(dir, "s") + ")/test") },
		stop:   syscall.SIGTERM, users: []string{"mysql", "nobody"},
	}, nil
}
