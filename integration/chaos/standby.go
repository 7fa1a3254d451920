//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Standby returns a standby of a PostgreSQL server that has not been started yet, in dir,
// which must be empty. It follows the server until it is promoted.
//
// It is a copy of the files, which are not written yet, and no base backup: pg_basebackup
// is not among the programs that scripts/need-postgres.sh fetches.
func (s *Server) Standby(dir string) (*Server, error) {
	if s.follow == nil {
		return nil, errors.New("chaos: standby: only a PostgreSQL has one")
	}
	standby := &Server{program: s.program, dir: dir, owner: s.owner, settings: append(slices.Clone(s.settings), s.follow(s.dir))}
	if s.owner != nil {
		if err := os.Chown(dir, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			return nil, fmt.Errorf("chaos: standby: %w", err)
		}
	}
	data := filepath.Join(dir, "data")
	for _, command := range [][]string{
		{"cp", "-a", filepath.Join(s.dir, "data"), data},
		{"touch", filepath.Join(data, "standby.signal")},
	} {
		if text, err := standby.command(command[0], command[1:]).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("chaos: standby: %s: %w: %s", command[0], err, text)
		}
	}
	return standby, nil
}

// Promote has a standby follow nobody any more and take writes, and waits until it does.
func (s *Server) Promote(ctx context.Context) error {
	if text, err := s.command(s.promote(s.dir)).CombinedOutput(); err != nil {
		return fmt.Errorf("chaos: promote: %w: %s", err, text)
	}
	if err := s.answers(ctx); err != nil {
		return fmt.Errorf("chaos: promote: %w: %s", err, s.Log())
	}
	return nil
}

// Either is the data source name that leads to whichever of two PostgreSQL servers
// takes writes.
func Either(a, b *Server) (string, error) {
	either, err := url.Parse(a.DSN())
	if err != nil {
		return "", fmt.Errorf("chaos: data source name: %w", err)
	}
	port := strconv.Itoa(serverPort)
	query := either.Query()
	query.Set("host", a.dir+","+b.dir)
	query.Set("port", port+","+port)
	query.Set("target_session_attrs", "read-write")
	query.Set("connect_timeout", "5")
	either.RawQuery = query.Encode()
	return either.String(), nil
}
