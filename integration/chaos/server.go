//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Server is a database server of a run's own, which the run may stop and kill. It
// listens on a Unix socket and keeps the default settings. Only Close is safe for
// concurrent use: it may come at any time, and nothing starts after it.
type Server struct {
	program
	dir      string
	owner    *syscall.Credential // nil when we are not root, whom databases refuse
	settings []string
	output   lockedBuffer

	mu      sync.Mutex
	closed  bool
	process *exec.Cmd
	ended   <-chan struct{}
}

// program is what differs between databases.
type program struct {
	initialise func(dir string) (name string, args []string)
	serve      func(dir string, settings []string) (name string, args []string)
	source     func(dir string) Source
	stop       syscall.Signal // ends it at once, if that can be had, and else in order
	users      []string       // who may own it when we are root
	// Of a standby; nil where there are none.
	follow  func(primary string) (setting string)
	promote func(dir string) (name string, args []string)
}

// NewServer prepares a PostgreSQL cluster in dir, which must be empty, without
// starting it. Settings are given as name=value.
func NewServer(dir string, settings ...string) (*Server, error) {
	bin, err := serverBinaries()
	if err != nil {
		return nil, err
	}
	return newServer(postgres(bin), dir, settings)
}

// NewMariaDB is [NewServer] for a MariaDB. Its immediate stop is an orderly one, which
// cuts connections.
func NewMariaDB(dir string, settings ...string) (*Server, error) {
	p, err := mariadb()
	if err != nil {
		return nil, err
	}
	return newServer(p, dir, settings)
}

func newServer(p program, dir string, settings []string) (*Server, error) {
	s := &Server{program: p, dir: dir, settings: settings}
	if os.Geteuid() == 0 {
		var err error
		if s.owner, err = unprivileged(p.users); err != nil {
			return nil, err
		}
		if err := os.Chown(dir, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			return nil, fmt.Errorf("chaos: server: %w", err)
		}
	}
	if text, err := s.command(p.initialise(dir)).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("chaos: server: initialise: %w: %s", err, text)
	}
	return s, nil
}

// unprivileged is the user who owns servers when we are root.
func unprivileged(names []string) (*syscall.Credential, error) {
	for _, name := range names {
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
	return nil, fmt.Errorf("chaos: server: databases refuse to run as root, and there is no user %s", strings.Join(names, " or "))
}

func (s *Server) command(name string, args []string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	// A process group of its own: a Ctrl-C is for the run, which ends the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Setpgid: true}
	// Children of a server that was killed keep its output open until they notice.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// DSN is the data source name of the server's default database.
func (s *Server) DSN() string { return string(s.source(s.dir)) }

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
	process := s.command(s.serve(s.dir, s.settings))
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
	db, err := s.source(s.dir).Pool()
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
func (s *Server) StopImmediately() { s.end(s.stop) }

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
	s.end(s.stop)
}

// pause waits. Faults are made of time, so this is not synchronisation.
func pause(d time.Duration) { <-time.After(d) }
