//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// Server is a PostgreSQL server of a run's own, which the run may stop and kill.
// It listens on a Unix socket and keeps the default settings. Only Close is safe for
// concurrent use: it may come at any time, and nothing starts after it.
type Server struct {
	bin, dir string
	owner    *syscall.Credential // nil when we are not root, whom PostgreSQL refuses
	settings []string
	output   lockedBuffer

	mu      sync.Mutex
	closed  bool
	process *exec.Cmd
	ended   <-chan struct{}
}

const serverPort = 5432 // of the socket's name only: its directory is the server's own

// NewServer prepares a cluster in dir, which must be empty, without starting it.
// Settings are given as name=value.
func NewServer(dir string, settings ...string) (*Server, error) {
	bin, err := serverBinaries()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, settings: settings}
	if os.Geteuid() == 0 {
		if s.owner, err = unprivileged(); err != nil {
			return nil, err
		}
		if err := os.Chown(dir, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			return nil, fmt.Errorf("chaos: server: %w", err)
		}
	}
	initdb := s.command("initdb", "--pgdata="+s.data(), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	if text, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("chaos: server: initdb: %w: %s", err, text)
	}
	return s, nil
}

// serverBinaries finds the newest installed server.
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
	return "", errors.New("chaos: server: the binaries of PostgreSQL (initdb, postgres) were not found: install them, or put their directory on PATH")
}

// unprivileged is the user who owns servers when we are root.
func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(account.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(account.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return nil, fmt.Errorf("chaos: server: user %q: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("chaos: server: PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	// A process group of its own: a Ctrl-C is for the run, which ends the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Setpgid: true}
	// Children of a server that was killed keep its output open until they notice.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// DSN is the data source name of the server's default database.
func (s *Server) DSN() string {
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%d&sslmode=disable&default_query_exec_mode=exec", s.dir, serverPort)
}

// Start starts the server and waits until it answers.
func (s *Server) Start(ctx context.Context) error {
	for {
		if err := s.launch(); err != nil {
			return err
		}
		if err := s.answers(ctx); err == nil {
			return nil
		} else if ctx.Err() != nil {
			return fmt.Errorf("chaos: server: %w: %s", context.Cause(ctx), s.Log())
		}
		// It ended. After a kill its predecessor's last children may still hold
		// the shared memory: start it again.
		pause(100 * time.Millisecond)
	}
}

func (s *Server) launch() error {
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "port=" + strconv.Itoa(serverPort)}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	process := s.command("postgres", args...)
	process.Stdout, process.Stderr = &s.output, &s.output
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("chaos: server: it is closed")
	}
	if err := process.Start(); err != nil {
		return fmt.Errorf("chaos: server: %w", err)
	}
	ended := make(chan struct{})
	s.process, s.ended = process, ended
	go func() { // Close waits for it
		defer close(ended)
		_ = process.Wait()
	}()
	return nil
}

// answers waits for the first successful query, or for the process to end.
func (s *Server) answers(ctx context.Context) error {
	db, err := sql.Open("pgx", s.DSN())
	if err != nil {
		return fmt.Errorf("chaos: server: %w", err)
	}
	defer db.Close()
	_, ended := s.current()
	for {
		if _, err := db.ExecContext(ctx, "SELECT 1"); err == nil {
			return nil
		} else if ctx.Err() != nil {
			return err
		}
		select {
		case <-ended:
			return errors.New("chaos: server: it ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// StopImmediately is pg_ctl's immediate mode: no checkpoint, recovery at the next
// start.
func (s *Server) StopImmediately() { s.end(syscall.SIGQUIT) }

// Kill kills the server's first process. Its children end when they notice.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Log is everything the server has said so far.
func (s *Server) Log() string { return s.output.String() }

// Running tells whether the server has not ended, be it by itself.
func (s *Server) Running() bool {
	_, ended := s.current()
	select {
	case <-ended:
		return false
	default:
		return ended != nil
	}
}

func (s *Server) current() (*exec.Cmd, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process, s.ended
}

func (s *Server) end(signal syscall.Signal) {
	process, ended := s.current()
	if process == nil {
		return
	}
	_ = process.Process.Signal(signal)
	<-ended
}

// Close stops the server for good; its directory is the caller's.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(syscall.SIGQUIT)
}

// pause waits. Faults are made of time, so this is not synchronisation.
func pause(d time.Duration) { <-time.After(d) }
