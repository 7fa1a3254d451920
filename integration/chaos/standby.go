//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
)

// Standby copies a server that runs into dir, which must be empty, and returns the
// copy, not started. It follows the server from then on, until it is promoted. A
// MariaDB has none.
func (s *Server) Standby(dir string) (*Server, error) {
	if s.copy == nil {
		return nil, errors.New("chaos: standby: only a PostgreSQL has one")
	}
	standby := &Server{program: s.program, dir: dir, owner: s.owner, settings: s.settings}
	if s.owner != nil {
		if err := os.Chown(dir, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			return nil, fmt.Errorf("chaos: standby: %w", err)
		}
	}
	if text, err := standby.command(s.copy(s.dir, dir)).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("chaos: standby: copy: %w: %s", err, text)
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
